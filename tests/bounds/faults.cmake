# Every kernel that breaks what it declares must exceed a bound: exit status 1, not another one.
foreach(fault "exp 64 ulp" "row sum in bf16" "dropout without" "sink in every split"
        "no derivative of the softcap")
  execute_process(
    COMMAND ${BOUNDS} --kernel "${fault}" --forward 2e4 --backward 2e4
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 1)
    message(FATAL_ERROR "\"${fault}\" ended with ${status}:\n${output}")
  endif()
endforeach()

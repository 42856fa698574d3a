# What is measured does not depend on the number of threads.
foreach(threads 1 3)
  execute_process(
    COMMAND ${BOUNDS} --dtype f16 --feature plain --forward 1 --backward 1
            --threads ${threads} --markdown ${FOLDER}/threads_${threads}.md
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "with ${threads} threads it ended with ${status}:\n${output}")
  endif()
endforeach()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E compare_files ${FOLDER}/threads_1.md ${FOLDER}/threads_3.md
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${FOLDER}/threads_1.md and threads_3.md differ")
endif()

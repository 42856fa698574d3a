# Nothing is built, but each file is parsed, with all its warnings. As a build it knows what has
# changed since the last time. What is not a test is parsed by clang-tidy, which tells what Clang
# warns of as well; before, Clang lists what the file includes.
foreach(language C CXX)
  set(arguments "<DEFINES> <INCLUDES> <FLAGS>")
  set(parse_${language} "<CMAKE_${language}_COMPILER> ${arguments} -fsyntax-only <SOURCE>")
  set(CMAKE_${language}_COMPILE_OBJECT
    "<CMAKE_${language}_COMPILER> ${arguments} -E -o /dev/null <SOURCE>"
    "clang-tidy --quiet <SOURCE> -- ${arguments}" "${CMAKE_COMMAND} -E touch <OBJECT>")
  set(CMAKE_${language}_CREATE_STATIC_LIBRARY "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_CREATE_SHARED_MODULE "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_LINK_EXECUTABLE "${CMAKE_COMMAND} -E touch <TARGET>")
endforeach()
# The files of this directory, such as the tests, by Clang alone.
macro(attest_lint_without_tidy)
  foreach(language C CXX)
    set(CMAKE_${language}_COMPILE_OBJECT "${parse_${language}}" "${CMAKE_COMMAND} -E touch <OBJECT>")
  endforeach()
endmacro()
# What a file includes only because another one is precompiled before it is found.
set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS OFF)  # they would end in "&& touch"

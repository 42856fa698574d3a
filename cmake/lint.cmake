# Nothing is built, but each file is parsed, with all its warnings, and clang-tidy looks at what is
# not a test. As a build it knows what has changed since the last time.
foreach(language C CXX)
  set(CMAKE_${language}_COMPILE_OBJECT "<CMAKE_${language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> \
-fsyntax-only <SOURCE>" "${CMAKE_COMMAND} -E touch <OBJECT>")
  set(CMAKE_${language}_CREATE_STATIC_LIBRARY "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_CREATE_SHARED_MODULE "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_LINK_EXECUTABLE "${CMAKE_COMMAND} -E touch <TARGET>")
endforeach()
# What a file includes only because another one is precompiled before it is found.
set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
set(CMAKE_CXX_CLANG_TIDY clang-tidy --quiet)
set(CMAKE_C_CLANG_TIDY clang-tidy --quiet)
set(CMAKE_EXPORT_COMPILE_COMMANDS OFF)  # they would end in "&& touch"

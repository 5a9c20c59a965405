# Installs the grammar library alone, builds examples/grammar, a C program, against the installed package and runs it.
# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DCXX=... -P install_test.cmake
include(${CMAKE_CURRENT_LIST_DIR}/../build_example.cmake)
build_example(grammar)
set(schema [=[{"type":"object","properties":{"n":{"type":"integer","minimum":17},"ok":{"const":true}},"required":["n","ok"],"additionalProperties":false}]=])
execute_process(COMMAND ${work}/example/deepinfer_grammar_example ${schema} OUTPUT_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT output MATCHES "^{\"[^\"]+\":[0-9]+,\"[^\"]+\":true}\n$")
  message(FATAL_ERROR "the example said (${result}): ${output}")
endif()
execute_process(COMMAND ${work}/example/deepinfer_grammar_example [=[{"minimum":"x"}]=] ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 1 OR NOT output MATCHES "minimum")
  message(FATAL_ERROR "the example said (${result}) about a bad schema: ${output}")
endif()

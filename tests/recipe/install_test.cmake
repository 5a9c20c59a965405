# Installs the recipe library alone, builds examples/recipe against the installed package and runs it on a request.
# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DCXX=... -P install_test.cmake
include(${CMAKE_CURRENT_LIST_DIR}/../build_example.cmake)
build_example(recipe)
file(WRITE ${work}/body.json [=[{"model":"any","messages":[{"role":"user","content":"Hello"}]}]=])
execute_process(
  COMMAND ${work}/example/deepinfer_recipe_example ${SOURCE_DIR}/models/deepseek-v41-tiny/tokenizer.json
  INPUT_FILE ${work}/body.json OUTPUT_VARIABLE output RESULT_VARIABLE result)
# The whole prompt of E01 in the specification, with the bundled tokenizer: begins and ends with these control ids.
if(NOT result EQUAL 0 OR NOT output MATCHES "^0 8064 .* 8068 6183 8069 8070 \n" OR NOT output MATCHES "\"Hello!\"")
  message(FATAL_ERROR "the example said (${result}): ${output}")
endif()

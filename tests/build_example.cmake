# Installs one component of the build alone and builds its example against the installed package.
#   include(.../build_example.cmake)
#   build_example(COMPONENT)      example in ${SOURCE_DIR}/examples/COMPONENT, built in ${work}/example
# Needs BUILD_DIR, SOURCE_DIR and CXX; sets `work`.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

function(build_example component)
  set(work ${BUILD_DIR}/tests/${component}_install)
  file(REMOVE_RECURSE ${work})
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component ${component} --prefix ${work}/prefix)
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/${component} -B ${work}/example -DCMAKE_PREFIX_PATH=${work}/prefix
      -DCMAKE_CXX_COMPILER=${CXX})
  run(${CMAKE_COMMAND} --build ${work}/example)
  set(work ${work} PARENT_SCOPE)
endfunction()

# The recipe library ships alone:
#   cmake --build build --target di_recipe_api && cmake --install build --component recipe --prefix PREFIX
# and is used with find_package(deepinfer-recipe) and deepinfer::recipe.
include(CMakePackageConfigHelpers)
set(targets di_core di_tokenizer di_recipe di_recipe_output di_recipe_api)
target_include_directories(di_recipe_api INTERFACE $<INSTALL_INTERFACE:include>)
set_target_properties(di_recipe_api PROPERTIES EXPORT_NAME recipe)
install(TARGETS ${targets} EXPORT deepinfer-recipe-targets ARCHIVE DESTINATION lib COMPONENT recipe)
install(FILES ${PROJECT_SOURCE_DIR}/include/deepinfer/recipe.h DESTINATION include/deepinfer COMPONENT recipe)
install(EXPORT deepinfer-recipe-targets NAMESPACE deepinfer:: DESTINATION lib/cmake/deepinfer-recipe COMPONENT recipe)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/deepinfer-recipe-config.cmake.in
  ${PROJECT_BINARY_DIR}/deepinfer-recipe-config.cmake
  INSTALL_DESTINATION lib/cmake/deepinfer-recipe)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepinfer-recipe-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepinfer-recipe-config.cmake
              ${PROJECT_BINARY_DIR}/deepinfer-recipe-config-version.cmake
        DESTINATION lib/cmake/deepinfer-recipe COMPONENT recipe)

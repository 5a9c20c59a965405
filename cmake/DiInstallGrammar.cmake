# The grammar library ships alone:
#   cmake --build build --target di_grammar && cmake --install build --component grammar --prefix PREFIX
# and is used with find_package(deepinfer-grammar) and deepinfer-grammar::grammar, from C or C++.
include(CMakePackageConfigHelpers)
target_include_directories(di_grammar INTERFACE $<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/deepinfer-grammar>)
set_target_properties(di_grammar PROPERTIES EXPORT_NAME grammar)
# A namespace of its own: the core library is in other packages too.
install(TARGETS di_core di_grammar EXPORT deepinfer-grammar-targets ARCHIVE DESTINATION lib COMPONENT grammar)
install(FILES ${PROJECT_SOURCE_DIR}/include/deepinfer/grammar.h ${PROJECT_SOURCE_DIR}/include/deepinfer/grammar_c.h
        DESTINATION include/deepinfer COMPONENT grammar)
install(FILES ${PROJECT_SOURCE_DIR}/src/core/json.h ${PROJECT_SOURCE_DIR}/src/core/status.h ${PROJECT_SOURCE_DIR}/src/core/check.h
        DESTINATION include/deepinfer-grammar/core COMPONENT grammar)
install(EXPORT deepinfer-grammar-targets NAMESPACE deepinfer-grammar:: DESTINATION lib/cmake/deepinfer-grammar COMPONENT grammar)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/deepinfer-grammar-config.cmake.in
  ${PROJECT_BINARY_DIR}/deepinfer-grammar-config.cmake
  INSTALL_DESTINATION lib/cmake/deepinfer-grammar)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepinfer-grammar-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepinfer-grammar-config.cmake
              ${PROJECT_BINARY_DIR}/deepinfer-grammar-config-version.cmake
        DESTINATION lib/cmake/deepinfer-grammar COMPONENT grammar)

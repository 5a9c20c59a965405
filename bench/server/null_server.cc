// SPDX-License-Identifier: Apache-2.0
// null_server [--step-us=N] [--SETTING=VALUE ...]: `deepinfer serve` with its engine and protocols replaced by
// null_engine.h.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "null_engine.h"
#include "server/service.h"

namespace deepinfer::server {
namespace {

Result<int> Main(int argc, char** argv) {
  PrepareSignals();
  int64_t step_us = 10'000;
  std::string config_file;
  std::vector<std::pair<std::string, std::string>> flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string_view::npos)
      return Error(Code::kInvalidArgument, "expected --NAME=VALUE");
    const std::string name(argument.substr(2, equals - 2)), value(argument.substr(equals + 1));
    if (name == "step-us") {
      step_us = std::atoll(value.c_str());
    } else if (name == "config") {
      config_file = value;
    } else {
      flags.emplace_back(name, value);
    }
  }
  DI_ASSIGN_OR_RETURN(const ServerConfig config, LoadConfig(config_file, flags));
  DI_ASSIGN_OR_RETURN(std::shared_ptr<JsonLog> log, JsonLog::Open(config.log_file));
  log->Write(DescribeConfig(config));
  prometheus::Registry registry;
  NullEngine engine(step_us, registry);
  return RunService(config, registry, std::move(log),
                    {.add_routes = [&](Router* router) { engine.AddRoutes(router); }});
}

}  // namespace
}  // namespace deepinfer::server

int main(int argc, char** argv) {
  const deepinfer::Result<int> result = deepinfer::server::Main(argc, argv);
  if (result.ok()) return *result;
  std::fprintf(stderr, "null_server: %s\n", result.status().message().c_str());
  return 1;
}

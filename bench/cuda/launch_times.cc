// SPDX-License-Identifier: Apache-2.0
#include "launch_times.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "graph_time.h"

// A copy of the last graph.
static cudaGraph_t seen_graph = nullptr;

extern "C" {
cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  if (seen_graph != nullptr) cudaGraphDestroy(seen_graph);
  if (const cudaError_t error = cudaGraphClone(&seen_graph, graph); error != cudaSuccess) return error;
  return __real_cudaGraphInstantiate(exec, graph, flags);
}
}

namespace deepinfer::bench {
namespace {

// "Kernel<..>" without namespaces and parameters.
std::string Short(const char* mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = demangled == nullptr ? mangled : demangled;
  std::free(demangled);
  for (const char* space : {"deepinfer::backend::cuda::", "(anonymous namespace)::", "void "}) {
    for (size_t at = 0; (at = name.find(space)) != std::string::npos;) name.erase(at, std::string(space).size());
  }
  return name.substr(0, name.find('('));
}

LaunchTime Describe(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  Must(cudaGraphNodeGetType(node, &type), "a node's type");
  if (type != cudaGraphNodeTypeKernel) return {.kernel = fmt::format("node of type {}", static_cast<int>(type)), .grid = {}};
  cudaKernelNodeParams params{};
  Must(cudaGraphKernelNodeGetParams(node, &params), "a kernel's parameters");
  const char* name = nullptr;
  Must(cudaFuncGetName(&name, params.func), "a kernel's name");
  return {.kernel = Short(name), .grid = params.gridDim};
}

// Median of single runs.
double Seconds(cudaGraph_t graph) {
  constexpr int kWarmups = 2, kRuns = 9;
  cudaGraphExec_t exec = nullptr;
  Must(__real_cudaGraphInstantiate(&exec, graph, 0), "instantiating a piece");
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  const double seconds = MedianSeconds(exec, stream, kWarmups, kRuns);
  cudaStreamDestroy(stream);
  cudaGraphExecDestroy(exec);
  return seconds;
}

// Takes the last node away that no other one waits for.
LaunchTime CutLast(std::vector<cudaGraphNode_t>& nodes) {
  for (size_t i = nodes.size(); i-- > 0;) {
    size_t dependents = 0;
    Must(cudaGraphNodeGetDependentNodes(nodes[i], nullptr, nullptr, &dependents), "a node's dependents");
    if (dependents > 0) continue;
    LaunchTime launch = Describe(nodes[i]);
    Must(cudaGraphDestroyNode(nodes[i]), "cutting a node");
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i));
    return launch;
  }
  return {};
}

}  // namespace

std::vector<LaunchTime> TimeLaunches() {
  if (seen_graph == nullptr) return {};
  size_t count = 0;
  Must(cudaGraphGetNodes(seen_graph, nullptr, &count), "nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  Must(cudaGraphGetNodes(seen_graph, nodes.data(), &count), "nodes");
  std::vector<LaunchTime> launches;
  double with = Seconds(seen_graph);
  while (!nodes.empty()) {
    LaunchTime launch = CutLast(nodes);
    const double without = nodes.empty() ? 0 : Seconds(seen_graph);
    launch.seconds = with - without;
    with = without;
    launches.push_back(std::move(launch));
  }
  std::reverse(launches.begin(), launches.end());
  return launches;
}

}  // namespace deepinfer::bench

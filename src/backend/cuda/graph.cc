// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/graph.h"

namespace deepinfer::backend::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  GraphRecording(Context& context, cudaGraphExec_t exec) : context_(context), exec_(exec) { context_.AddGraph(); }
  ~GraphRecording() override {
    context_.Enter();
    context_.Record(cudaGraphExecDestroy(exec_), "destroying a graph");
    context_.RemoveGraph();
  }

  void Replay() override {
    context_.Enter();
    context_.Record(cudaGraphLaunch(exec_, context_.stream()), "launching a graph");
    context_.MarkBusy();
  }

 private:
  Context& context_;
  cudaGraphExec_t exec_;
};

}  // namespace

void BeginGraph(Context& context) {
  // Nothing may be allocated while the stream is captured.
  context.SettleScratch();
  context.Record(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal), "beginning a graph");
}

Result<std::unique_ptr<Recording>> EndGraph(Context& context) {
  context.Enter();
  cudaGraph_t graph = nullptr;
  context.Record(cudaStreamEndCapture(context.stream(), &graph), "ending a graph");
  cudaGraphExec_t exec = nullptr;
  if (graph != nullptr) {
    context.Record(cudaGraphInstantiate(&exec, graph, 0), "instantiating a graph");
    context.Record(cudaGraphDestroy(graph), "destroying a graph");
  }
  DI_RETURN_IF_ERROR(context.TakeError());
  return Result<std::unique_ptr<Recording>>(std::make_unique<GraphRecording>(context, exec));
}

}  // namespace deepinfer::backend::cuda

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

Result<std::unique_ptr<Recording>> EndGraph(Context& context) {
  cudaGraphExec_t exec = nullptr;
  DI_RETURN_IF_ERROR(context.EndCapture(&exec));
  return Result<std::unique_ptr<Recording>>(std::make_unique<GraphRecording>(context, exec));
}

}  // namespace deepinfer::backend::cuda

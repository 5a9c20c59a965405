// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_metrics.h"

namespace deepinfer::server {
namespace {

prometheus::Gauge& AddGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Counter& AddCounter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

const prometheus::Histogram::BucketBoundaries kSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1,
                                                          3,     10,    30,   100,  300, 1000};

}  // namespace

HttpMetrics::HttpMetrics(prometheus::Registry& registry, const Router& router)
    : connections(AddGauge(registry, "deepinfer_http_connections", "Open connections.")),
      requests_open(
          AddGauge(registry, "deepinfer_http_requests_open", "Requests that are not answered to the end yet.")),
      connections_accepted(
          AddCounter(registry, "deepinfer_http_connections_accepted_total", "Connections that were accepted.")),
      connections_refused(AddCounter(registry, "deepinfer_http_connections_refused_total",
                                     "Connections over the limit, answered with 503 at once.")),
      bytes_sent(
          AddCounter(registry, "deepinfer_http_bytes_sent_total", "Bytes handed to the kernel, heads included.")),
      clients_gone(AddCounter(registry, "deepinfer_http_clients_gone_total",
                              "Requests whose client left before the answer's end.")),
      clients_cut_off(AddCounter(registry, "deepinfer_http_clients_cut_off_total",
                                 "Requests cut off because the client did not read.")),
      answered_(prometheus::BuildCounter()
                    .Name("deepinfer_http_requests_total")
                    .Help("Requests answered, by route and status (499: the client left).")
                    .Register(registry)),
      seconds_(prometheus::BuildHistogram()
                   .Name("deepinfer_http_request_seconds")
                   .Help("From a request's first byte to the end of its answer.")
                   .Register(registry)) {
  first_ = router.routes().data();
  for (const Route& route : router.routes()) {
    routes_.push_back(std::make_unique<PerRoute>());
    routes_.back()->name = route.method + " " + route.pattern;
  }
  routes_.push_back(std::make_unique<PerRoute>());
  routes_.back()->name = "unknown";
}

void HttpMetrics::OnAnswered(const Route* route, int status, double seconds) {
  PerRoute& per_route = *routes_[route == nullptr ? routes_.size() - 1 : static_cast<size_t>(route - first_)];
  if (status < 0 || status >= static_cast<int>(per_route.answered.size())) status = 0;
  std::atomic<prometheus::Counter*>& cell = per_route.answered[static_cast<size_t>(status)];
  prometheus::Counter* counter = cell.load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &answered_.Add(
        {{"route", per_route.name}, {"code", std::to_string(status)}});  // the same one for the same labels
    cell.store(counter, std::memory_order_release);
  }
  counter->Increment();
  prometheus::Histogram* histogram = per_route.seconds.load(std::memory_order_acquire);
  if (histogram == nullptr) {
    histogram = &seconds_.Add({{"route", per_route.name}}, kSeconds);
    per_route.seconds.store(histogram, std::memory_order_release);
  }
  histogram->Observe(seconds);
}

}  // namespace deepinfer::server

// SPDX-License-Identifier: Apache-2.0
// Limits and settings of the transport, with their defaults. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer::server {

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address, not a name
  int port = 8000;                 // 0: the system picks one
  int io_threads = 1;              // each carries some 100,000 short requests or streamed tokens a second
  int worker_threads = 2;          // for handlers that parse and encode
  int worker_queue_max = 1024;     // requests that wait for a worker
  std::string tls_certificate_file, tls_key_file;  // both or neither
  std::vector<std::string> cors_origins;           // "https://example.org", or "*"; empty: no CORS

  size_t header_bytes_max = size_t{64} << 10;
  size_t body_bytes_max = size_t{64} << 20;
  size_t body_memory_bytes_max = size_t{1} << 30;  // all bodies of requests that are not answered yet
  int connections_max = 20'000;
  size_t stream_buffer_bytes_max =
      size_t{1} << 20;  // unread bytes of one stream beyond the kernel's; over it the client is cut off

  double header_seconds = 10;       // from a request's first byte to the end of its header
  double body_seconds = 60;         // from there to the end of its body
  double idle_seconds = 75;         // a connection without a request
  double write_stall_seconds = 30;  // a client that takes nothing of what waits for it is cut off
  double heartbeat_seconds = 10;    // a silent stream sends its heartbeat
  bool log_requests = true;         // a line for each request
};

}  // namespace deepinfer::server

// SPDX-License-Identifier: Apache-2.0
#include "xz.h"

#include <lzma.h>

#include <fstream>
#include <iterator>

#include "core/check.h"

namespace deepinfer::grammar {

std::vector<Json> ReadJsonLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  DI_CHECK(!packed.empty());
  lzma_stream stream = LZMA_STREAM_INIT;
  DI_CHECK(lzma_stream_decoder(&stream, UINT64_MAX, 0) == LZMA_OK);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string text;
  lzma_ret code = LZMA_OK;
  while (code == LZMA_OK) {
    std::string chunk(1 << 20, '\0');
    stream.next_out = reinterpret_cast<uint8_t*>(chunk.data());
    stream.avail_out = chunk.size();
    code = lzma_code(&stream, LZMA_FINISH);
    text.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  DI_CHECK(code == LZMA_STREAM_END);
  lzma_end(&stream);
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    auto line = ParseJson(std::string_view(text).substr(begin, end - begin));
    DI_CHECK(line.ok());
    lines.push_back(*std::move(line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace deepinfer::grammar

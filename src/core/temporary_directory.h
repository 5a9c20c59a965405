// SPDX-License-Identifier: Apache-2.0
// A fresh directory that is removed with all it holds when the object goes. For tests and tools. Not thread-safe.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/check.h"

namespace deepinfer::core {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "deepinfer-XXXXXX").string();
    DI_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace deepinfer::core

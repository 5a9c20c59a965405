// SPDX-License-Identifier: Apache-2.0
// Property: however the text is cut into pieces, what comes out is the text before the first stop string, and no byte of
// it comes later than it must.
#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer::engine {
namespace {

TEST(StopStrings, EverySplitGivesTheSame) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 5000; ++repeat) {
    const auto letters = [&](size_t n) {
      std::string text;
      for (size_t i = 0; i < n; ++i) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::string text = letters(random() % 30);
    const std::vector<std::string> stops = {letters(1 + random() % 6), letters(3 + random() % 4)};
    size_t end = std::string::npos, complete = std::string::npos;  // where the stop string begins and ends
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos || at + stop.size() > complete) continue;
      end = at + stop.size() < complete ? at : std::min(end, at);
      complete = at + stop.size();
    }

    StopStrings matcher(stops);
    std::string out;
    bool stopped = false;
    for (size_t i = 0; i < text.size() && !stopped;) {
      const size_t n = 1 + random() % 4;
      stopped = matcher.Push(std::string_view(text).substr(i, n), &out);
      i += n;
    }
    EXPECT_EQ(stopped, end != std::string::npos);
    if (!stopped) matcher.Flush(&out);
    EXPECT_EQ(out.substr(0, end), text.substr(0, end)) << text << " | " << stops[0] << " | " << stops[1];
    EXPECT_LE(out.size(), std::min(end, text.size()));
  }
}

TEST(StopStrings, HoldsNoMoreThanItMust) {
  StopStrings matcher({"<end>"});
  std::string out;
  EXPECT_FALSE(matcher.Push("text <en", &out));
  EXPECT_EQ(out, "text ");
  EXPECT_FALSE(matcher.Push("g", &out));
  EXPECT_EQ(out, "text <eng");
  StopStrings none({});
  out.clear();
  EXPECT_FALSE(none.Push("all", &out));
  EXPECT_EQ(out, "all");
}

}  // namespace
}  // namespace deepinfer::engine

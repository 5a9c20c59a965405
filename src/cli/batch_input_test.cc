// SPDX-License-Identifier: Apache-2.0
// Property: every line of a file is seen once, whatever its length, line ends and pieces it comes in; lines over the limit
// are skipped and told; ids name what a line asks.
#include "cli/batch_input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cli/batch_output.h"
#include "core/temporary_directory.h"

namespace deepinfer::cli {
namespace {

using Next = LineReader::Next;

std::vector<std::string> ReadAll(const std::string& bytes, size_t limit) {
  const core::TemporaryDirectory directory;
  const std::string path = directory.path() + "/in";
  std::ofstream(path, std::ios::binary) << bytes;
  auto reader = LineReader::Open(path, limit);
  EXPECT_TRUE(reader.ok());
  std::vector<std::string> lines;
  std::string line;
  while (true) {
    const Result<Next> next = reader->Read(1000, &line);
    if (!next.ok() || *next == Next::kEnd) break;
    lines.push_back(*next == Next::kTooLong ? "TOO LONG" : line);
  }
  EXPECT_EQ(LineReader::Count(path), static_cast<int64_t>(lines.size()));
  EXPECT_EQ(reader->line_number(), static_cast<int64_t>(lines.size()));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineReader, EveryLineOnce) {
  EXPECT_EQ(ReadAll("", 10), Lines{});
  EXPECT_EQ(ReadAll("\n", 10), Lines{""});
  EXPECT_EQ(ReadAll("a\nb", 10), (Lines{"a", "b"}));
  EXPECT_EQ(ReadAll("\xEF\xBB\xBF" "a\n\nb\n", 10), (Lines{"a", "", "b"}));
  EXPECT_EQ(ReadAll("0123456789\n01234567890\nx\n", 10), (Lines{"0123456789", "TOO LONG", "x"}));
  EXPECT_EQ(ReadAll("a\n" + std::string(1000000, 'b'), 10), (Lines{"a", "TOO LONG"}));
  const std::string large(700000, 'c');  // more than is read at a time
  EXPECT_EQ(ReadAll(large + "\n" + large, 1000000), (Lines{large, large}));
  EXPECT_EQ(ReadAll(large + "\nx\n" + large + "\ny", 100), (Lines{"TOO LONG", "x", "TOO LONG", "y"}));
}

TEST(LineReader, APipeInPieces) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  auto reader = LineReader::Open("-");
  dup2(saved, STDIN_FILENO);
  close(saved);
  close(ends[0]);
  ASSERT_TRUE(reader.ok());
  std::string line;
  EXPECT_EQ(*reader->Read(1, &line), Next::kNotYet);
  ASSERT_EQ(write(ends[1], "ab", 2), 2);
  EXPECT_EQ(*reader->Read(1, &line), Next::kNotYet);
  ASSERT_EQ(write(ends[1], "c\nd", 3), 3);
  EXPECT_EQ(*reader->Read(1, &line), Next::kLine);
  EXPECT_EQ(line, "abc");
  close(ends[1]);
  EXPECT_EQ(*reader->Read(1, &line), Next::kLine);
  EXPECT_EQ(line, "d");
  EXPECT_EQ(*reader->Read(1, &line), Next::kEnd);
}

TEST(ParseBatchLine, BothLayoutsAndWhatIsWrong) {
  BatchLine line;
  BatchLineError error;
  ASSERT_TRUE(ParseBatchLine(R"({"prompt": "x", "seed": 1.50})", 7, &line, &error)) << error.message;
  EXPECT_EQ(line.custom_id, "line-7");
  EXPECT_EQ(line.protocol, recipe::Protocol::kCompletions);
  EXPECT_EQ(line.body, R"({"prompt":"x","seed":1.50,"model":"deepseek-v4.1"})");
  const std::string id = line.id;
  ASSERT_TRUE(ParseBatchLine(R"({"prompt":"x","seed":1.50})", 7, &line, &error));
  EXPECT_EQ(line.id, id);
  ASSERT_TRUE(ParseBatchLine(R"({"prompt":"x","seed":1.5})", 7, &line, &error));
  EXPECT_NE(line.id, id);
  ASSERT_TRUE(ParseBatchLine(R"({"custom_id":"a","url":"/v1/messages","body":{"model":"m"}})", 8, &line, &error));
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.protocol, recipe::Protocol::kMessages);
  EXPECT_EQ(line.body, R"({"model":"m"})");

  const auto refused = [&](std::string_view text, std::string_view part) {
    EXPECT_FALSE(ParseBatchLine(text, 9, &line, &error)) << text;
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
    EXPECT_TRUE(error.message.starts_with("line 9: ")) << error.message;
    EXPECT_FALSE(line.custom_id.empty());
    EXPECT_FALSE(line.id.empty());
  };
  refused("", "JSON");
  refused("{\"prompt\": \"\xff\"}", "JSON");
  refused("[1]", "object");
  refused("{}", "custom_id");
  refused(R"({"custom_id": 5, "prompt": "x"})", "custom_id");
  refused(R"({"custom_id": ")" + std::string(600, 'a') + R"(", "prompt": "x"})", "custom_id");
  refused(R"({"custom_id":"a","method":"GET","url":"/v1/messages","body":{}})", "method");
  refused(R"({"custom_id":"a","url":"/v1/embeddings","body":{}})", "url");
  refused(R"({"custom_id":"a","url":"/v1/messages","body":[]})", "body");
  EXPECT_EQ(line.custom_id, "a");  // the error is reported under it
}

TEST(BatchOutput, FindsWhatIsThereAndRepairsATornLine) {
  const core::TemporaryDirectory directory;
  const std::string path = directory.path() + "/out";
  {
    auto output = BatchOutput::Open(path);
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_FALSE(BatchOutput::Open(path).ok());  // locked
    ASSERT_TRUE(output->Append("a", "batch_req_1", R"({"id":"batch_req_1","custom_id":"a"})").ok());
    ASSERT_TRUE(output->Append("b", "batch_req_2", R"({"id":"batch_req_2","custom_id":"b"})").ok());
  }
  std::ofstream(path, std::ios::app) << R"({"id":"batch_req_3","cus)";
  {
    auto output = BatchOutput::Open(path);
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(output->size(), 2u);
    EXPECT_EQ(output->Find("a", "batch_req_1"), BatchOutput::Known::kYes);
    EXPECT_EQ(output->Find("a", "batch_req_9"), BatchOutput::Known::kOther);
    EXPECT_EQ(output->Find("c", "batch_req_3"), BatchOutput::Known::kNo);
    ASSERT_TRUE(output->Append("c", "batch_req_3", R"({"id":"batch_req_3","custom_id":"c"})").ok());
  }
  std::ifstream file(path);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(content,
            "{\"id\":\"batch_req_1\",\"custom_id\":\"a\"}\n{\"id\":\"batch_req_2\",\"custom_id\":\"b\"}\n"
            "{\"id\":\"batch_req_3\",\"custom_id\":\"c\"}\n");
}

TEST(BatchOutput, LeavesOtherFilesAlone) {
  const core::TemporaryDirectory directory;
  for (const std::string text : {"hello\n", "{\"a\":1}\n", "my only copy", "{\"id\":\"batch_req_1\",\"custom_id\":\"a\"}\nx\n"}) {
    const std::string path = directory.path() + "/file";
    std::ofstream(path) << text;
    EXPECT_FALSE(BatchOutput::Open(path).ok());
    std::ifstream file(path);
    EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}), text);
  }
  EXPECT_FALSE(BatchOutput::Open(directory.path()).ok());
  EXPECT_FALSE(LineReader::Open(directory.path()).ok());
  EXPECT_FALSE(LineReader::Open(directory.path() + "/absent").ok());
}

}  // namespace
}  // namespace deepinfer::cli

// SPDX-License-Identifier: Apache-2.0
// Properties: multipliers, primes, offsets and rows are those of the published model and of the golden checkpoints.
#include "checkpoint/engram_hash.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"

namespace deepinfer::checkpoint {
namespace {

EngramConfig Published() {
  EngramConfig config;
  config.layers = {1, 14};
  config.num_embeddings = {384006168, 384016682};
  config.ngram_max = 4;
  config.vocab_size = 16000000;
  config.num_heads = 8;
  config.head_dim = 256;
  config.pad_token_id = 2;
  config.compressed_vocab_size = 99092;
  return config;
}

TEST(EngramHash, PublishedConstants) {
  const std::vector<EngramHash> hashes = MakeEngramHashes(Published());
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(hashes[0].multipliers,
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].multipliers,
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(hashes[0].primes,
            (std::vector<int64_t>{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
                                  16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
                                  16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463}));
  EXPECT_EQ(hashes[1].primes,
            (std::vector<int64_t>{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
                                  16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
                                  16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
  EXPECT_EQ(hashes[0].num_rows(), 384006168);
  EXPECT_EQ(hashes[1].num_rows(), 384016682);
}

TEST(EngramHash, PublishedRows) {
  struct Case {
    std::vector<int32_t> ids;
    std::vector<int64_t> layer_1, layer_14;  // columns 0, 7, 8, 16, 23
  };
  const Case kCases[] = {
      {{5, 2, 2, 2},
       {5412672, 127351390, 143494632, 256353435, 372009279},
       {6939818, 119840903, 131576092, 268363546, 382274687}},
      {{13, 11, 7, 5},
       {4449004, 124752916, 128589888, 268272278, 369904649},
       {15143247, 125960436, 134948014, 267543071, 378459855}},
      {{99091, 99091, 99091, 99091},
       {12193612, 117454273, 132502226, 260190704, 375130424},
       {11374428, 125397095, 139959227, 266572408, 375878100}},
      {{0, 0, 0, 0}, {0, 112000697, 128000880, 256002934, 368005705}, {0, 112003663, 128004290, 256009984, 368015793}},
  };
  const std::vector<EngramHash> hashes = MakeEngramHashes(Published());
  for (const Case& c : kCases) {
    for (size_t layer = 0; layer < 2; ++layer) {
      std::vector<int64_t> rows(24);
      hashes[layer].Rows(c.ids, rows);
      EXPECT_EQ((std::vector<int64_t>{rows[0], rows[7], rows[8], rows[16], rows[23]}),
                layer == 0 ? c.layer_1 : c.layer_14);
    }
  }
}

// The golden checkpoints hold the rows of every token of a sequence, and the token map. In folder `image` n-grams stop
// at the tokens of an image span.
TEST(EngramHash, GoldenRows) {
  for (const char* folder : {"engram", "image"}) {
    SCOPED_TRACE(folder);
    const std::string directory = std::string(DI_SOURCE_DIR) + "/tests/golden/model/" + folder;
    const Result<Checkpoint> checkpoint = Checkpoint::Open(directory);
    const Result<SafetensorsFile> golden = SafetensorsFile::Open(directory + "/golden.safetensors");
    ASSERT_TRUE(checkpoint.ok() && golden.ok());
    const EngramConfig& config = checkpoint->config().engram;
    const auto tokens = golden->Find("ids.2")->As<int32_t>();
    const auto map = golden->Find("engram_map")->As<int32_t>();
    const Result<TensorView> image = golden->Find("image.2");
    const auto is_image = [&](size_t i) { return image.ok() && std::to_integer<int>(image->data[i]) != 0; };
    const std::vector<EngramHash> hashes = MakeEngramHashes(config);
    for (size_t layer = 0; layer < hashes.size(); ++layer) {
      const auto expected = golden->Find(fmt::format("engram_rows.{}.2", config.layers[layer]))->As<int32_t>();
      const auto columns = static_cast<size_t>(config.num_columns());
      ASSERT_EQ(expected.size(), tokens.size() * columns);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const int32_t pad = map[static_cast<size_t>(config.pad_token_id)];
        std::vector<int32_t> ids(static_cast<size_t>(config.ngram_max), pad);
        for (size_t back = 0; back < ids.size() && back <= i && !is_image(i - back); ++back) {
          ids[back] = map[static_cast<size_t>(tokens[i - back])];
        }
        std::vector<int64_t> rows(columns);
        hashes[layer].Rows(ids, rows);
        for (size_t c = 0; c < columns; ++c) EXPECT_EQ(rows[c], expected[i * columns + c]) << i << " column " << c;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::checkpoint

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the first text, in the order of the tokens, that satisfies a JSON Schema: at each step the lowest token of the
 * mask, here single bytes, so characters of keys and strings come as escapes. Usage: deepinfer_grammar_example SCHEMA */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepinfer/grammar_c.h"

enum { kTokens = 257, kStop = 256, kTextMax = 1000 };

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s SCHEMA\n", argv[0]), 2;
  char bytes[256];
  const char* tokens[kTokens];
  size_t sizes[kTokens];
  for (int i = 0; i < kTokens; ++i) {
    if (i != kStop) bytes[i] = (char)i;
    tokens[i] = i == kStop ? "" : &bytes[i];
    sizes[i] = i == kStop ? 0 : 1;
  }
  const uint32_t stop = kStop;
  di_grammar_vocabulary* vocabulary = di_grammar_vocabulary_new(tokens, sizes, kTokens, NULL, 0, &stop, 1);
  di_grammar_options options = di_grammar_default_options();
  options.whitespace_max = 0;
  di_grammar_compiled* compiled = NULL;
  char error[500];
  if (di_grammar_compile(vocabulary, DI_GRAMMAR_JSON_SCHEMA, argv[1], strlen(argv[1]), &options, &compiled, error, sizeof error) != DI_GRAMMAR_OK) {
    return fprintf(stderr, "%s\n", error), 1;
  }
  di_grammar_matcher* matcher = di_grammar_matcher_new(compiled);
  uint32_t* mask = malloc(di_grammar_mask_words(vocabulary) * sizeof *mask);
  for (int step = 0; step < kTextMax && !di_grammar_is_complete(matcher); ++step) {
    if (di_grammar_fill_mask(matcher, mask) != DI_GRAMMAR_OK) return 1;
    uint32_t token = 0;
    while ((mask[token / 32] >> (token % 32) & 1) == 0) ++token;
    if (di_grammar_accept(matcher, token) != DI_GRAMMAR_OK) return 1;
    putchar(bytes[token]);
  }
  putchar('\n');
  free(mask);
  di_grammar_matcher_free(matcher);
  di_grammar_compiled_free(compiled);
  di_grammar_vocabulary_free(vocabulary);
  return 0;
}

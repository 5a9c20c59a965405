/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained decoding for C: see deepinfer/grammar.h for what is promised.
 *
 * Ownership: every di_grammar_*_new/compile/fork result is freed by its _free; NULL is fine there. Objects keep alive
 * what they need, so they may be freed in any order. Thread safety: vocabularies and compiled grammars may be shared by
 * threads; a matcher and its forks belong to one thread at a time.
 * Errors: functions that can fail return 0 for success, else a DI_GRAMMAR_* code; where there is an `error` buffer, the
 * message is written to it, cut to size and always terminated. No function aborts or throws on bad input; pointers must be
 * what they say, and without memory the program ends. */
#ifndef DEEPINFER_GRAMMAR_C_H_
#define DEEPINFER_GRAMMAR_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_grammar_vocabulary di_grammar_vocabulary;
typedef struct di_grammar_compiled di_grammar_compiled;
typedef struct di_grammar_matcher di_grammar_matcher;

enum {
  DI_GRAMMAR_OK = 0,
  DI_GRAMMAR_INVALID = 1,      /* bad syntax, unsatisfiable, or a token that is not allowed */
  DI_GRAMMAR_UNSUPPORTED = 2,  /* cannot be enforced; the message names keyword and place */
  DI_GRAMMAR_LIMIT = 3,        /* time, memory or size */
  DI_GRAMMAR_OTHER = 4
};

enum { DI_GRAMMAR_REGEX = 0, DI_GRAMMAR_JSON_SCHEMA = 1, DI_GRAMMAR_GBNF = 2, DI_GRAMMAR_LARK = 3, DI_GRAMMAR_STRUCTURAL_TAG = 4 };

typedef struct {
  int free_key_order;       /* 0: keys in the order of the schema */
  uint32_t whitespace_max;  /* blanks at each place where JSON allows any; 0: compact */
  int ignore_formats;       /* 1: `format` is an annotation */
  int allow_unsupported;    /* 1: keywords that cannot be enforced are dropped */
  int usual_spelling;       /* 1: of JSON as programs and people write it, not as the standard allows */
} di_grammar_options;

/* Options with the defaults of deepinfer/grammar.h. */
di_grammar_options di_grammar_default_options(void);

/* bytes[i] and sizes[i]: token i. Ids in `special` are matched by id only; ids in `stop` end the output. */
di_grammar_vocabulary* di_grammar_vocabulary_new(const char* const* bytes, const size_t* sizes, size_t count,
                                                 const uint32_t* special, size_t special_count, const uint32_t* stop,
                                                 size_t stop_count);
void di_grammar_vocabulary_free(di_grammar_vocabulary* vocabulary);
/* 32-bit words of a mask. */
size_t di_grammar_mask_words(const di_grammar_vocabulary* vocabulary);

/* `kind`: DI_GRAMMAR_REGEX ... `options` may be NULL. On success *out is set. */
int di_grammar_compile(const di_grammar_vocabulary* vocabulary, int kind, const char* text, size_t size,
                       const di_grammar_options* options, di_grammar_compiled** out, char* error, size_t error_size);
void di_grammar_compiled_free(di_grammar_compiled* compiled);

di_grammar_matcher* di_grammar_matcher_new(const di_grammar_compiled* compiled);
di_grammar_matcher* di_grammar_matcher_fork(const di_grammar_matcher* matcher);
void di_grammar_matcher_free(di_grammar_matcher* matcher);

/* `mask` has room for di_grammar_mask_words words. DI_GRAMMAR_LIMIT ends the matcher: all later calls give it too. */
int di_grammar_fill_mask(di_grammar_matcher* matcher, uint32_t* mask);
int di_grammar_accept(di_grammar_matcher* matcher, uint32_t token);
/* Takes back the last `count` tokens; DI_GRAMMAR_INVALID where fewer were accepted. */
int di_grammar_rollback(di_grammar_matcher* matcher, size_t count);
int di_grammar_is_complete(const di_grammar_matcher* matcher);
int di_grammar_is_finished(di_grammar_matcher* matcher);
/* Writes the tokens that must follow, at most `max`; gives their number. */
size_t di_grammar_forced_tokens(di_grammar_matcher* matcher, uint32_t* tokens, size_t max);

#ifdef __cplusplus
}
#endif

#endif /* DEEPINFER_GRAMMAR_C_H_ */

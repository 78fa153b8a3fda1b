/* The C API of mlmfast: load a model's folder, score token ids with it on the CPU.
 *
 * A model is a masked language model, or a student distilled from one (its config.json names the architecture
 * MlmfastStudent): a student reads a text once, unmasked, and where a masked model gives a token's
 * log-probability it gives its prediction of it, which may be above 0; one of head cls, at position 0 alone,
 * that of the text's pseudo-log-likelihood. It has no masks, and no outputs but log_prob.
 *
 * Every function that can fail returns a status and leaves a message in mlmfast_last_error(). Pointers must
 * not be NULL but where it says so; arrays must be as long as the counts beside them say. What an output
 * points to is undefined after an error. Logarithms are natural. A call runs in the calling thread, and
 * several threads may use one model at once.
 *
 * Every struct starts with struct_size, its sizeof where the caller was compiled: start from the struct's
 * ..._INIT macro, which sets it. A later version may append fields, for which 0 means what was done before
 * they were there: fields that the caller's struct does not reach are taken as 0, bytes beyond those this
 * library knows must be 0, and a struct smaller than its first version is refused. */
#ifndef MLMFAST_C_API_H
#define MLMFAST_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __GNUC__
#define MLMFAST_API __attribute__((visibility("default")))
#else
#define MLMFAST_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises with every addition. A program runs with any library whose mlmfast_api_version() is at least the
 * MLMFAST_API_VERSION it was compiled with. */
#define MLMFAST_API_VERSION 1

MLMFAST_API int32_t mlmfast_api_version(void);

/* The release, as "0.1.0". */
MLMFAST_API const char* mlmfast_version(void);

typedef enum mlmfast_status {
  MLMFAST_OK = 0,
  MLMFAST_INVALID_ARGUMENT = 1, /* the caller's: a NULL, a wrong size, an id or a position out of range */
  MLMFAST_MODEL_ERROR = 2,      /* the folder's: files missing, damaged or contradictory */
  MLMFAST_UNSUPPORTED = 3,      /* a model that may be sound, but that this library cannot compute */
  MLMFAST_OUT_OF_MEMORY = 4,
  MLMFAST_INTERNAL = 5 /* a defect of this library */
} mlmfast_status;

/* What the calling thread's last failed call says: where, what was expected, what came. Empty before any.
 * Valid until the thread's next call. */
MLMFAST_API const char* mlmfast_last_error(void);

typedef struct mlmfast_model mlmfast_model;

typedef struct mlmfast_load_options {
  size_t struct_size;
  const char* precision; /* "float32", "bf16x3", "bf16x4", "bfloat16" or "int8"; NULL: "float32" */
  const char* isa; /* "generic", "avx2", "avx512", "avx512_bf16" or "amx"; NULL: what the environment variable
                      MLMFAST_ISA names, or the fastest this CPU has */
  int64_t mask_token_id; /* -1: the one that the folder's tokenizer.json (ESM: vocab.txt) says */
} mlmfast_load_options;
#define MLMFAST_LOAD_OPTIONS_INIT {sizeof(mlmfast_load_options), NULL, NULL, -1}

/* Reads config.json, the safetensors weights and the mask token of a model's folder. options may be NULL: the
 * defaults. *model is NULL after an error; else free it with mlmfast_free. */
MLMFAST_API mlmfast_status mlmfast_load(const char* folder, const mlmfast_load_options* options,
                                        mlmfast_model** model);

/* No call may be using the model. NULL is allowed. */
MLMFAST_API void mlmfast_free(mlmfast_model* model);

typedef struct mlmfast_info {
  size_t struct_size;
  int64_t max_length;    /* tokens of one text, special tokens included */
  int64_t vocab_size;    /* token ids are 0 to vocab_size - 1 */
  int64_t hidden_size;
  int64_t mask_token_id; /* -1: none was given, and the folder has no tokenizer.json (ESM: vocab.txt), or the
                            model is a student */
  const char* precision; /* never freed, as isa */
  const char* isa;
} mlmfast_info;
#define MLMFAST_INFO_INIT {sizeof(mlmfast_info), 0, 0, 0, 0, NULL, NULL}

MLMFAST_API mlmfast_status mlmfast_get_info(const mlmfast_model* model, mlmfast_info* info);

/* Original masking (Salazar et al. 2020): log_probs[i] is the log-probability of the token at positions[i]
 * with that token alone masked. Their sum over all tokens but the special ones is the text's
 * pseudo-log-likelihood, or a student's prediction of it; of a student of head cls log_probs is one number,
 * that prediction, at positions {0}.
 *   input_ids [num_tokens]: 1 to max_length, special tokens included
 *   positions [num_positions]: each 0 to num_tokens - 1; NULL: every one, and num_positions is num_tokens
 *   log_probs [num_positions] */
MLMFAST_API mlmfast_status mlmfast_score_text(const mlmfast_model* model, const int32_t* input_ids,
                                              int64_t num_tokens, const int32_t* positions,
                                              int64_t num_positions, float* log_probs);

/* Rows, each a text with some tokens masked and some asked for. CSR offsets: row r masks
 * mask_positions[mask_offsets[r]] up to, not including, mask_positions[mask_offsets[r + 1]], and so for
 * targets and texts. Offsets start at 0, never fall, and end at the count beside them. A target may be masked
 * or not. An array whose count is 0 may be NULL, offsets may not. Counts are less than 2^31; some thousand
 * tokens of rows are enough to be fast. */
typedef struct mlmfast_batch {
  size_t struct_size;
  int64_t num_texts;
  int64_t num_tokens;
  const int64_t* text_offsets;   /* [num_texts + 1]; each text has 1 to max_length tokens */
  const int32_t* input_ids;      /* [num_tokens] special tokens included */
  const int32_t* token_type_ids; /* [num_tokens] or NULL: all 0 */
  int64_t num_rows;
  const int32_t* row_text; /* [num_rows] the text of each row */
  int64_t num_masks;
  const int64_t* mask_offsets;   /* [num_rows + 1] */
  const int32_t* mask_positions; /* [num_masks] within the row */
  int64_t num_targets;
  const int64_t* target_offsets;   /* [num_rows + 1] */
  const int32_t* target_positions; /* [num_targets] within the row */
  const int32_t* target_ids;       /* [num_targets] the token whose probability is asked for */
  int64_t mask_token_id;           /* -1: the model's */
} mlmfast_batch;
#define MLMFAST_BATCH_INIT \
  {sizeof(mlmfast_batch), 0, 0, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, -1}

/* Where the results of a batch's targets go, in order; NULL where one is not wanted. A target whose
 * log-probability is not a number (of a model with such weights) has rank and top_ids -1. */
typedef struct mlmfast_outputs {
  size_t struct_size;
  float* log_prob; /* [num_targets] always wanted */
  float* logit;    /* [num_targets] */
  int32_t* rank;   /* [num_targets] how many tokens of the vocabulary are more probable */
  float* entropy;  /* [num_targets] of the distribution, nats */
  int64_t top_k;   /* 0 to vocab_size */
  int32_t* top_ids;     /* [num_targets, top_k] the most probable tokens, most probable first; not NULL */
  float* top_log_probs; /* [num_targets, top_k] if top_k > 0, and so here */
} mlmfast_outputs;
#define MLMFAST_OUTPUTS_INIT {sizeof(mlmfast_outputs), NULL, NULL, NULL, NULL, 0, NULL, NULL}

MLMFAST_API mlmfast_status mlmfast_score_batch(const mlmfast_model* model, const mlmfast_batch* batch,
                                               const mlmfast_outputs* outputs);

#ifdef __cplusplus
}
#endif

#endif

/* Log-probabilities of a text's tokens, each masked in turn:
 *   score_tokens MODEL_FOLDER ID ID ID ...
 * The first and the last id are the model's special tokens, which are read but not scored. */
#include <mlmfast/c_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 512 };

int main(int argc, char** argv) {
  int32_t ids[MAX_TOKENS], positions[MAX_TOKENS];
  float log_probs[MAX_TOKENS];
  const int num_tokens = argc - 2, num_scored = num_tokens - 2;
  mlmfast_model* model = NULL;
  double sum = 0;
  char* end;
  int i, failed;

  if (num_tokens < 2 || num_tokens > MAX_TOKENS) {
    fprintf(stderr, "usage: score_tokens MODEL_FOLDER ID ID ... (2 to %d ids)\n", (int)MAX_TOKENS);
    return 2;
  }
  for (i = 0; i < num_tokens; ++i) {
    const char* const text = argv[i + 2];
    const long id = strtol(text, &end, 10);
    if (end == text || *end != '\0' || id < 0 || id > INT32_MAX) {
      fprintf(stderr, "score_tokens: %s is not a token id\n", text);
      return 2;
    }
    ids[i] = (int32_t)id;
  }
  for (i = 0; i < num_scored; ++i) positions[i] = i + 1;
  failed = mlmfast_load(argv[1], NULL, &model) != MLMFAST_OK ||
           mlmfast_score_text(model, ids, num_tokens, positions, num_scored, log_probs) != MLMFAST_OK;
  if (failed) fprintf(stderr, "%s\n", mlmfast_last_error());
  for (i = 0; !failed && i < num_scored; sum += log_probs[i++]) printf("%d %.6f\n", (int)ids[i + 1], log_probs[i]);
  if (!failed) printf("sum %.6f\n", sum);
  mlmfast_free(model);
  return failed;
}

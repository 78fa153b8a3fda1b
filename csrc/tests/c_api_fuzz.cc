// A fuzzer of the C API: models whole and damaged, batches sound and hostile, structs of any size, in any
// order that lifetimes allow. Nothing may crash, read beyond an array, or answer what is not documented.
//   c_api_fuzz tests/data/models [seconds [seed [trace]]]
// One seed plays one sequence of calls; to trace it names each before it is made.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "c_api_testing.h"
#include "check.h"
#include "damage.h"
#include "hostile.h"
#include "model_testing.h"

using namespace mlmfast::testing;

namespace {

const char* const kModels[] = {"bert", "bert-sharded", "roberta", "distilbert", "albert", "electra", "modernbert",
                               "esm2"};
// Those whose 32 features can make one head, which attends over packed operands.
const char* const kOneHead[] = {"bert", "roberta", "electra", "modernbert"};
const char* const kFiles[] = {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
                              "tokenizer_config.json", "vocab.txt"};
const char* const kPrecisionNames[] = {nullptr, "float32", "bf16x3", "bf16x4", "bfloat16", "int8", "int3", ""};
const char* const kIsas[] = {nullptr, "", "generic", "avx2", "avx512", "avx512_bf16", "amx", "sse9"};

struct Loaded {
  ModelHandle model;
  mlmfast_info info;
  bool is_whole;
  std::vector<float> first_scores;  // of one text; later calls must not change them
};

class Fuzzer {
 public:
  Fuzzer(std::string models, uint32_t seed, bool traces)
      : models_(std::move(models)), random_(seed), damage_(seed), traces_(traces) {}

  void run_case() {
    ++num_cases_;
    switch (random_.below(12)) {
      case 0: return load(true);
      case 1: return load(false);
      case 2: return free_one();
      case 3: return ask_info();
      case 4: return pass_nulls();
      case 5: return pass_sizes();
      case 6: return score_first_text();
      case 7:
      case 8: return score_text();
      default: return score_batch();
    }
  }

  void print_summary() const {
    std::printf("%lld cases: %lld models loaded, %lld refused; %lld batches scored, %lld refused\n", num_cases_,
                num_loaded_, num_load_refused_, num_scored_, num_score_refused_);
    check(num_loaded_ > 0 && num_load_refused_ > 0 && num_scored_ > 0 && num_score_refused_ > 0,
          "every kind of outcome comes up");
  }

 private:
  void name(const std::string& what) {
    case_ = "case " + std::to_string(num_cases_) + ": " + what;
    if (traces_) std::fprintf(stderr, "%s\n", case_.c_str());
  }

  // A status that is one of the expected, and a message with every failure.
  mlmfast_status expect(mlmfast_status status, std::initializer_list<mlmfast_status> expected) {
    check(std::find(expected.begin(), expected.end(), status) != expected.end(),
          case_ + ": status " + std::to_string(status) + ", " + mlmfast_last_error());
    if (status != MLMFAST_OK) check(std::strncmp(mlmfast_last_error(), "mlmfast_", 8) == 0, case_ + ": no message");
    return status;
  }

  void load(bool is_whole) {
    const std::string model = random_.pick(kModels);
    std::string folder = models_ + "/" + model, damaged;
    const bool one_head = std::count(std::begin(kOneHead), std::end(kOneHead), model) > 0 && random_.once_in(2);
    if (!is_whole || one_head) folder = temporary_.link_files_of(folder);
    if (one_head) set_one_head(folder + "/config.json");
    if (!is_whole) damaged = damage_file(folder);
    mlmfast_load_options options = MLMFAST_LOAD_OPTIONS_INIT;
    if (random_.once_in(2)) options.precision = random_.pick(kPrecisionNames);
    if (random_.once_in(2)) options.isa = random_.pick(kIsas);
    if (random_.once_in(8)) options.mask_token_id = random_.hostile(320);
    name("load " + model + (one_head ? " with one head " : " ") + damaged);
    mlmfast_model* handle = nullptr;
    const mlmfast_status status =
        expect(mlmfast_load(folder.c_str(), &options, &handle),
               {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT, MLMFAST_MODEL_ERROR, MLMFAST_UNSUPPORTED});
    check(!is_whole || status <= MLMFAST_INVALID_ARGUMENT, case_ + ": " + mlmfast_last_error());
    check((handle != nullptr) == (status == MLMFAST_OK), case_ + ": a model only where it is whole");
    ++(handle == nullptr ? num_load_refused_ : num_loaded_);
    if (handle == nullptr) return;
    if (loaded_.size() == 4) free_one();
    loaded_.push_back({ModelHandle(handle), info_of(handle), is_whole, {}});
    loaded_.back().first_scores = first_scores(loaded_.back());
  }

  void set_one_head(const std::string& config) {
    std::string text = mlmfast::read_bytes(config);
    text[text.find_first_of("0123456789", text.find("\"num_attention_heads\""))] = '1';
    mlmfast::write_bytes(config, text);
  }

  // Which file was damaged.
  std::string damage_file(const std::string& folder) {
    std::string file;
    do file = random_.pick(kFiles);
    while (!std::filesystem::exists(folder + "/" + file));
    const std::string path = folder + "/" + file;
    if (random_.once_in(20)) {
      std::filesystem::remove(path);
      if (random_.once_in(2)) std::filesystem::create_directory(path);
      return file + " gone";
    }
    std::string bytes = mlmfast::read_bytes(path);
    const bool in_header = file == "model.safetensors" && random_.once_in(2);
    const size_t region = in_header ? mlmfast::data_begin(bytes) : bytes.size();
    for (size_t times = 1 + random_.below(3); times > 0 && bytes.size() >= region; --times) {
      bytes = damage_.apply(std::move(bytes), region);
    }
    mlmfast::write_bytes(path, bytes);
    return file;
  }

  void free_one() {
    if (loaded_.empty()) return mlmfast_free(nullptr);
    name("free");
    loaded_.erase(loaded_.begin() + static_cast<int64_t>(random_.below(loaded_.size())));
  }

  // Null where none is loaded.
  const Loaded* any_model() { return loaded_.empty() ? nullptr : &loaded_[random_.below(loaded_.size())]; }

  void ask_info() {
    const Loaded* loaded = any_model();
    if (loaded == nullptr) return;
    name("info");
    const mlmfast_info info = info_of(loaded->model.get());
    check(info.max_length > 0 && info.vocab_size > 0 && info.hidden_size > 0 && info.mask_token_id >= -1 &&
              info.mask_token_id < info.vocab_size && info.isa != nullptr && info.precision != nullptr,
          case_ + ": not to be believed");
  }

  void pass_nulls() {
    const Loaded* loaded = any_model();
    const mlmfast_model* model = loaded == nullptr || random_.once_in(2) ? nullptr : loaded->model.get();
    name("nulls");
    mlmfast_model* handle = nullptr;
    mlmfast_info info = MLMFAST_INFO_INIT;
    const mlmfast_batch batch = MLMFAST_BATCH_INIT;
    const mlmfast_outputs outputs = MLMFAST_OUTPUTS_INIT;
    expect(mlmfast_load(nullptr, nullptr, random_.once_in(2) ? nullptr : &handle), {MLMFAST_INVALID_ARGUMENT});
    expect(mlmfast_get_info(model, model == nullptr && random_.once_in(2) ? &info : nullptr),
           {MLMFAST_INVALID_ARGUMENT});
    expect(mlmfast_score_text(model, nullptr, random_.hostile(5), nullptr, random_.hostile(5), nullptr),
           {MLMFAST_INVALID_ARGUMENT});
    expect(mlmfast_score_batch(model, random_.once_in(2) ? &batch : nullptr, nullptr), {MLMFAST_INVALID_ARGUMENT});
    expect(mlmfast_score_batch(model, &batch, &outputs), {MLMFAST_INVALID_ARGUMENT});
  }

  void pass_sizes() {
    const Loaded* loaded = any_model();
    if (loaded == nullptr) return;
    name("struct sizes");
    const mlmfast_model* model = loaded->model.get();
    std::vector<char> info = random_.resized(mlmfast_info MLMFAST_INFO_INIT);
    expect(mlmfast_get_info(model, reinterpret_cast<mlmfast_info*>(info.data())),
           {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    const Rows rows;
    const std::vector<char> batch = random_.resized(rows.batch());
    const std::vector<char> outputs = random_.resized(mlmfast_outputs MLMFAST_OUTPUTS_INIT);
    expect(mlmfast_score_batch(model, reinterpret_cast<const mlmfast_batch*>(batch.data()),
                               reinterpret_cast<const mlmfast_outputs*>(outputs.data())),
           {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    const std::vector<char> options = random_.resized(mlmfast_load_options MLMFAST_LOAD_OPTIONS_INIT);
    mlmfast_model* handle = nullptr;
    expect(mlmfast_load((models_ + "/bert").c_str(),
                        reinterpret_cast<const mlmfast_load_options*>(options.data()), &handle),
           {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    mlmfast_free(handle);
  }

  // Of a text that every model takes; empty where its mask token is not known.
  std::vector<float> first_scores(const Loaded& loaded) {
    const std::vector<int32_t> ids = text_of(std::min<int64_t>(loaded.info.max_length, 8), loaded.info.vocab_size);
    const int64_t length = static_cast<int64_t>(ids.size());
    std::vector<float> log_probs(length);
    const mlmfast_status status = expect(
        mlmfast_score_text(loaded.model.get(), ids.data(), length, nullptr, length, log_probs.data()),
        {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    check(status == MLMFAST_OK || loaded.info.mask_token_id == -1, case_ + ": " + mlmfast_last_error());
    return status == MLMFAST_OK ? log_probs : std::vector<float>();
  }

  void score_first_text() {
    const Loaded* loaded = any_model();
    if (loaded == nullptr) return;
    name("the first text again");
    const std::vector<float> scores = first_scores(*loaded), &first = loaded->first_scores;
    check(scores.size() == first.size() &&
              (first.empty() || std::memcmp(scores.data(), first.data(), first.size() * sizeof(float)) == 0),
          case_ + ": other scores");
  }

  void score_text() {
    const Loaded* loaded = any_model();
    if (loaded == nullptr) return;
    std::vector<int32_t> ids = random_.some_text(loaded->info), positions(random_.below(6));
    const int64_t length = static_cast<int64_t>(ids.size());
    for (int32_t& position : positions) position = static_cast<int32_t>(random_.below(length));
    const bool is_sound = random_.once_in(2);
    if (!is_sound && random_.once_in(2)) random_.spoil_one(ids, loaded->info.vocab_size);
    if (!is_sound && random_.once_in(2)) random_.spoil_one(positions, length);
    std::vector<float> log_probs(positions.size());
    name("score a text of " + std::to_string(length) + " tokens");
    const mlmfast_status status = expect(
        mlmfast_score_text(loaded->model.get(), ids.data(), length, positions.data(),
                           static_cast<int64_t>(positions.size()), log_probs.data()),
        {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    const bool must_score = is_sound && !positions.empty() && loaded->info.mask_token_id >= 0;
    finish_scoring(*loaded, status, must_score, log_probs);
  }

  void finish_scoring(const Loaded& loaded, mlmfast_status status, bool must_score,
                      const std::vector<float>& log_probs) {
    ++(status == MLMFAST_OK ? num_scored_ : num_score_refused_);
    if (must_score) check(status == MLMFAST_OK, case_ + ": " + mlmfast_last_error());
    if (status != MLMFAST_OK) return;
    for (float log_prob : log_probs) {
      check(log_prob < 1e-5f || (std::isnan(log_prob) && !loaded.is_whole), case_ + ": " + std::to_string(log_prob));
    }
  }

  void score_batch() {
    const Loaded* loaded = any_model();
    if (loaded == nullptr) return;
    const mlmfast_info& info = loaded->info;
    Rows rows = random_.some_rows(info);
    const bool is_sound = random_.once_in(3);
    const int64_t num_targets = static_cast<int64_t>(rows.target_ids.size());
    while (!is_sound && random_.once_in(2)) random_.spoil_arrays(rows, info);
    const size_t most = static_cast<size_t>(std::min<int64_t>(info.vocab_size, 40));
    Results results(num_targets, random_.once_in(2) ? 0 : static_cast<int64_t>(random_.below(most + 1)));
    mlmfast_batch batch = rows.batch();
    mlmfast_outputs outputs = results.outputs();
    if (!is_sound && random_.once_in(2)) random_.spoil_fields(batch, outputs, info);
    name("score a batch of " + std::to_string(batch.num_rows) + " rows");
    const mlmfast_status status = expect(mlmfast_score_batch(loaded->model.get(), &batch, &outputs),
                                         {MLMFAST_OK, MLMFAST_INVALID_ARGUMENT});
    finish_scoring(*loaded, status, is_sound && (batch.num_masks == 0 || info.mask_token_id >= 0), results.log_prob);
    if (status != MLMFAST_OK) return;
    for (const auto& ids : {results.rank, results.top_ids}) {
      for (int32_t id : ids) check(id >= -1 && id < info.vocab_size, case_ + ": rank or id " + std::to_string(id));
    }
    for (float entropy : results.entropy) check(!(entropy < 0), case_ + ": entropy " + std::to_string(entropy));
  }

  const std::string models_;
  const mlmfast::TemporaryFolder temporary_;
  Random random_;
  mlmfast::Damage damage_;
  const bool traces_;
  std::vector<Loaded> loaded_;
  std::string case_;
  long long num_cases_ = 0, num_loaded_ = 0, num_load_refused_ = 0, num_scored_ = 0, num_score_refused_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) return 2;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  const auto seed = static_cast<uint32_t>(argc > 3 ? std::atoll(argv[3]) : 1);
  Fuzzer fuzzer(argv[1], seed, argc > 4);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) fuzzer.run_case();
  fuzzer.print_summary();
  return report("c_api_fuzz");
}

// Reading damaged models: refused with a message, or read as a whole, but no crash.
#include <cstring>
#include <string>
#include <utility>

#include "damage.h"
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"
#include "model_testing.h"

using namespace mlmfast;

namespace {

// Whether a model that may be damaged reads as a whole; only ModelError may say that it does not.
bool reads_whole(const std::string& folder) {
  try {
    const ModelSpec spec = read_model_spec(folder);
    expect(spec.head_size() * spec.num_heads == spec.hidden_size && spec.max_length > 0 &&
               spec.norm_eps > 0 && static_cast<int64_t>(spec.attention.size()) == spec.num_layers,
           "a spec in itself consistent");
    const Weights weights(folder, spec);
    volatile float sink = 0;
    for_each_place(spec, [&](Role role, int64_t layer) {
      if (!weights.has(role, layer)) return;
      for (float value : weights.floats(role, layer)) sink = value;
    });
    expect(weights.has(Role::query_weight, spec.num_layers - 1) && weights.has(Role::decoder_weight),
           "a whole model");
    return true;
  } catch (const ModelError& error) {
    expect(std::string(error.what()).find(folder) == 0,
           std::string("a message that says where: ") + error.what());
  } catch (const std::exception& error) {
    expect(false, std::string("an exception of another kind: ") + error.what());
  }
  return false;
}

// How many of many damaged models are refused, each with one file of a whole one damaged.
int count_refused(const std::string& model, const std::string& file, int num_cases, bool in_header,
                  const TemporaryFolder& temporary) {
  const std::string folder = temporary.link_files_of(model), path = folder + "/" + file;
  const std::string bytes = read_bytes(path);
  Damage damage(static_cast<uint32_t>(num_cases));
  int num_refused = 0;
  for (int i = 0; i < num_cases; ++i) {
    write_bytes(path, damage.apply(bytes, in_header ? data_begin(bytes) : bytes.size()));
    num_refused += !reads_whole(folder);
  }
  std::cout << model << "/" << file << ": " << num_refused << " of " << num_cases << " refused\n";
  return num_refused;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: damaged_model_test tests/data/models\n";
    return 2;
  }
  const std::string models = argv[1];
  const TemporaryFolder temporary;
  for (const char* name : {"bert", "modernbert"}) {
    const std::string model = models + "/" + name, weights = "model.safetensors";
    const int in_header = count_refused(model, weights, 2500, true, temporary);
    const int anywhere = count_refused(model, weights, 500, false, temporary);
    const int in_config = count_refused(model, "config.json", 3000, false, temporary);
    expect(in_header > 2000 && anywhere > 100 && in_config > 1500, model + ": damage is noticed");
    expect(anywhere < 500 && in_config < 3000, model + ": damage of what is not read is no reason to refuse");
  }
  const int in_index =
      count_refused(models + "/bert-sharded", "model.safetensors.index.json", 1000, false, temporary);
  expect(in_index > 500, "bert-sharded: damage is noticed");
  return report();
}

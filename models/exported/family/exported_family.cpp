#include "models/exported/family/exported_family.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "models/exported/family/graph_inputs.h"
#include "models/exported/family/opened_model.h"
#include "runtime/config/keys/table/rules.h"

namespace dstrain {
namespace {

constexpr std::string_view kInputsKey = "inputs";

constexpr Rule kInputs{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                         const std::string problem = exported::inputs_problem(value);
                         if (problem.empty()) return {};
                         return {State::error, problem};
                       },
                       "honoured"};

std::vector<ModelKey> keys_of_archives() {
  return {{{.key = "dstrain.model.file",
            .type = Type::string,
            .fallback = "\"\"",
            .note = "the archive that torch.export.save has written; --model FILE.pt2 names it"},
           FactChange::forbidden},
          {{.key = "dstrain.model.inputs",
            .type = Type::any,
            .note = "what texts give the graph's inputs, such as {\"idx\": \"tokens\", \"tgt\": "
                    "\"targets\"}: tokens, targets, labels (the tokens themselves), mask, "
                    "positions, documents; unset: by their names. Of images: images, labels; "
                    "unset: by their types",
            .rule = &kInputs},
           FactChange::forbidden},
          {{.key = "dstrain.model.loss_weight",
            .type = Type::string,
            .note = "the name of an output that weighs the loss of a micro-batch, a count of "
                    "targets: the mean is over all of the global batch; unset: the mean of the "
                    "micro-batches' means"},
           FactChange::forbidden},
          {{.key = "dstrain.model.blocks",
            .type = Type::strings,
            .note = "patterns of the paths of modules that are layers, such as [\"h.*\"]; unset: "
                    "the lists of modules with equal parameters"},
           FactChange::forbidden},
          {{.key = "dstrain.model.strip_prefix",
            .type = Type::string,
            .note = "what the names of tensors begin with in the archive, and not in weights that "
                    "are read and written, such as \"model.\""},
           FactChange::impossible}};
}

std::optional<KeyProblem> exported_problem(const ModelConfig& c) {
  if (!c.text("file").empty()) return std::nullopt;
  return KeyProblem{{"dstrain.model.file"},
                    "missing: name an archive of torch.export.save, here or with --model FILE.pt2"};
}

// Returns the family of an archive. Each is read once.
const ModelFamily& open(const ModelConfig& config, GivenData data) {
  static std::mutex mutex;
  static std::map<std::pair<std::vector<std::string>, GivenData>,
                  std::unique_ptr<exported::OpenedModel>>
      opened;
  std::vector<std::string> settings;
  for (const ModelKey& key : config.family().keys) settings.push_back(config.text(key.name()));
  const std::lock_guard lock(mutex);
  auto& model = opened[{settings, data}];
  if (!model)
    model = std::make_unique<exported::OpenedModel>(
        exported::GraphSettings{.file = config.text("file"),
                                .inputs = config.text(kInputsKey),
                                .loss_weight = config.text("loss_weight"),
                                .blocks = config.text("blocks"),
                                .strip_prefix = config.text("strip_prefix")},
        data, keys_of_archives());
  return model->family();
}

}  // namespace

const ModelFamily& exported_family() {
  static const ModelFamily family{.type = "exported",
                                  .title = "exported model",
                                  .keys = keys_of_archives(),
                                  .inputs = {},
                                  .problem = exported_problem,
                                  .open = open,
                                  .file_key = "file",
                                  .inputs_key = kInputsKey,
                                  .file_suffix = ".pt2"};
  return family;
}

}  // namespace dstrain

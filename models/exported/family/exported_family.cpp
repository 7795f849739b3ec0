#include "models/exported/family/exported_family.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "models/exported/family/opened_model.h"

namespace dstrain {
namespace {

std::vector<ModelKey> keys_of_archives() {
  return {{{.key = "dstrain.model.file",
            .type = Type::string,
            .fallback = "\"\"",
            .note = "the archive that torch.export.save has written; --model FILE.pt2 names it"},
           FactChange::forbidden}};
}

std::optional<KeyProblem> exported_problem(const ModelConfig& c) {
  if (!c.text("file").empty()) return std::nullopt;
  return KeyProblem{{"dstrain.model.file"},
                    "missing: name an archive of torch.export.save, here or with --model FILE.pt2"};
}

// Returns the family of an archive. Each is read once.
const ModelFamily& open(const ModelConfig& config, bool arrays) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, bool>, std::unique_ptr<exported::OpenedModel>> opened;
  const std::lock_guard lock(mutex);
  auto& model = opened[{config.text("file"), arrays}];
  if (!model)
    model =
        std::make_unique<exported::OpenedModel>(config.text("file"), arrays, keys_of_archives());
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
                                  .file_suffix = ".pt2"};
  return family;
}

}  // namespace dstrain

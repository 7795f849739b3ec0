#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "runtime/config/keys/table/coerce.h"

namespace dstrain {
namespace {

// Returns the shape of a sample, whose dimensions are keys or numbers.
std::string shape_text(const ModelInput& input) {
  if (!input.sizes.empty()) return fmt::format("({})", fmt::join(input.sizes, ", "));
  return fmt::format("({})", fmt::join(input.shape, ", "));
}

nlohmann::ordered_json shape_json(const ModelInput& input) {
  if (!input.sizes.empty()) return input.sizes;
  return input.shape;
}

std::string models_text(const ModelRegistry& models) {
  std::string text;
  for (const ModelFamily* family : models.families()) {
    text += fmt::format("{}: {}{}\n", family->type, family->title,
                        family == models.families().front() ? ", the default" : "");
    for (const ModelKey& key : family->keys) {
      const std::string value = key.required                ? "required"
                                : key.spec.fallback.empty() ? "unset"
                                                            : std::string(key.spec.fallback);
      text += fmt::format("  {:<12} {:<10} {}{}{}\n", key.name(), value, expectation(key.spec),
                          key.spec.note.empty() ? "" : "; ", key.spec.note);
    }
    for (const ModelInput& input : family->inputs)
      text += fmt::format("  input {}: {}, {} {}{}\n", input.name, name_of(input.role),
                          name_of(input.dtype), shape_text(input),
                          input.classes.empty() ? "" : fmt::format(" below {}", input.classes));
  }
  return text;
}

std::string models_json(const ModelRegistry& models) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const ModelFamily* family : models.families()) {
    Json keys = Json::array(), inputs = Json::array();
    for (const ModelKey& key : family->keys) keys.push_back(key.name());
    for (const ModelInput& input : family->inputs)
      if (input.role != InputRole::documents)  // which few runs have
        inputs.push_back(
            {{"name", input.name}, {"dtype", name_of(input.dtype)}, {"shape", shape_json(input)}});
    list.push_back({{"type", family->type}, {"keys", keys}, {"inputs", inputs}});
  }
  return list.dump(1) + "\n";
}

}  // namespace

int run_models(const ModelsArguments& arguments, const ModelRegistry& models) {
  print_result(arguments.json ? models_json(models) : models_text(models));
  return 0;
}

}  // namespace dstrain

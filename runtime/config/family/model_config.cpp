#include "runtime/config/family/model_config.h"

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/config/json/reader.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

ModelConfig::Value default_of(const KeySpec& spec) {
  const Node node = spec.fallback.empty() ? Node{} : read_value(spec.fallback, Source::file);
  switch (spec.type) {
    case Type::integer:
      return node.integer;
    case Type::real:
      return node.real;
    case Type::boolean:
      return node.boolean;
    case Type::string:
    case Type::choice:
    case Type::any:
    case Type::strings:
      return node.text;
    default:
      throw InternalError(fmt::format("{} has a type that a model's keys cannot have", spec.key));
  }
}

}  // namespace

ModelConfig::ModelConfig(const ModelFamily& family) : family_(&family) {
  for (const ModelKey& key : family.keys) values_.push_back(default_of(key.spec));
}

const ModelFamily& ModelConfig::family() const {
  check(family_, "the job has no model");
  return *family_;
}

size_t ModelConfig::index_of(std::string_view key) const {
  const std::vector<ModelKey>& keys = family().keys;
  const auto found = std::ranges::find(keys, key, &ModelKey::name);
  check(found != keys.end(), "a {} has no key {}", family().title, key);
  return static_cast<size_t>(found - keys.begin());
}

const ModelConfig::Value& ModelConfig::value(std::string_view key) const {
  return values_[index_of(key)];
}

template <class T>
const T& ModelConfig::get(std::string_view key) const {
  const T* held = std::get_if<T>(&value(key));
  check(held, "{} of a {} is of another type", key, family().title);
  return *held;
}

int64_t ModelConfig::integer(std::string_view key) const {
  return get<int64_t>(key);
}

double ModelConfig::real(std::string_view key) const {
  return get<double>(key);
}

bool ModelConfig::flag(std::string_view key) const {
  return get<bool>(key);
}

const std::string& ModelConfig::text(std::string_view key) const {
  return get<std::string>(key);
}

void ModelConfig::set(std::string_view key, const Value& value) {
  Value& held = values_[index_of(key)];
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer && std::holds_alternative<double>(held)) {
    held = static_cast<double>(*integer);
    return;
  }
  check(held.index() == value.index(), "{} of a {} is of another type", key, family().title);
  held = value;
}

// A family of files has no sizes before a file is opened: a configuration with an error goes on without.
int64_t ModelConfig::layers() const {
  if (family().count_layers) return family().count_layers(*this);
  const std::string_view key = family().layers_key;
  return key.empty() ? 1 : integer(key);
}

int64_t ModelConfig::width() const {
  const std::string_view key = family().width_key;
  return key.empty() ? 1 : integer(key);
}

int64_t ModelConfig::context() const {
  const std::string_view key = family().context_key();
  return key.empty() ? 1 : integer(key);
}

int64_t ModelConfig::usual_seq_len() const {
  const int64_t most = family().usual_tokens;
  return most > 0 ? std::min(most, context()) : context();
}

int64_t ModelConfig::seq_len() const {
  return seq_len_ > 0 ? seq_len_ : usual_seq_len();
}

int64_t ModelConfig::vocabulary() const {
  const std::string_view key = family().vocabulary_key();
  return key.empty() ? 0 : integer(key);
}

ModelConfig ModelConfig::with_any_vocabulary() const {
  ModelConfig model = *this;
  if (family().reads_tokens()) model.set_vocabulary(std::max<int64_t>(vocabulary(), 1));
  return model;
}

void ModelConfig::set_layers(int64_t layers) {
  if (!family().count_layers) set(family().layers_key, layers);
}

void ModelConfig::set_vocabulary(int64_t size) {
  set(family().vocabulary_key(), size);
}

bool ModelConfig::is_whole(std::string_view input) const {
  return std::ranges::find(whole_, input) != whole_.end();
}

std::vector<int64_t> ModelConfig::sizes_of(const ModelInput& input) const {
  if (is_whole(input.name)) return input.whole;
  std::vector<int64_t> sizes = input.sizes;
  for (const std::string_view key : input.shape)
    sizes.push_back(key == family().context_key() ? seq_len() : integer(key));
  return sizes;
}

int64_t ModelConfig::elements_of(InputRole role) const {
  const ModelInput* input = family().input(role);
  check(input, "a {} has no {}", family().title, name_of(role));
  int64_t elements = 1;
  for (const int64_t size : sizes_of(*input)) elements *= size;
  return elements;
}

ModelMeasures ModelConfig::measures() const {
  return family().measure ? family().measure(*this) : ModelMeasures{};
}

}  // namespace dstrain

// ModelRegistry: the families of models that a program is built with, and with them all keys of a configuration.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/key_spec.h"

namespace dstrain {

class ModelRegistry {
 public:
  // The first family is the default of dstrain.model.type. The caller keeps all alive. Throws InternalError as
  // check_inputs() does.
  explicit ModelRegistry(std::vector<const ModelFamily*> families);
  ModelRegistry(const ModelRegistry&) = delete;  // rows of the key table refer to its members
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  const std::vector<const ModelFamily*>& families() const { return families_; }
  // Returns the family of a type, or null.
  const ModelFamily* find(std::string_view type) const;
  // Returns the types, separated by `separator`, in order.
  std::string types(std::string_view separator) const;
  // Returns the key table: common_keys() and, behind dstrain.model, the type, the families' keys, and the fields of
  // config.json that are no keys.
  const std::vector<KeySpec>& keys() const { return keys_; }

 private:
  // Adds the row of a field, or the family to the row that another one has of it.
  void add_field(const KeySpec& field, std::string_view type, std::vector<KeySpec>& rows);

  std::vector<const ModelFamily*> families_;
  std::string default_type_, choices_;  // of the row of dstrain.model.type
  std::string hugging_face_choices_;    // of the row of dstrain.model.model_type
  std::deque<std::string> only_;        // families of a field
  std::vector<KeySpec> keys_;
};

}  // namespace dstrain

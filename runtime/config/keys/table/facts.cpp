#include "runtime/config/keys/table/facts.h"

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

Node default_of(std::string_view key, const Facts& facts) {
  const KeySpec* spec = find_key(facts, key);
  check(spec, "the key table has no {}", key);
  return spec->fallback.empty() ? Node{} : read_value(spec->fallback, Source::file);
}

// Returns the value of `key` if it is present and legal, else the default.
Node legal_or_default(const Facts& facts, std::string_view key) {
  const Member* member = find(*facts.root, key);
  const KeySpec* spec = find_key(facts, key);
  check(spec, "the key table has no {}", key);
  if (member && !member->value.is_auto() && !member->value.is(Node::Kind::null) &&
      type_error(*spec, member->value).empty())
    return in_table_case(*spec, member->value);
  return default_of(key, facts);
}

}  // namespace

bool Facts::on(std::string_view key) const {
  return to_boolean(legal_or_default(*this, key)).value_or(false);
}

std::string Facts::text(std::string_view key) const {
  return legal_or_default(*this, key).text;
}

int64_t Facts::integer(std::string_view key) const {
  return to_integer(legal_or_default(*this, key)).value_or(0);
}

bool Facts::legal(std::string_view key) const {
  const Member* member = find(*root, key);
  const KeySpec* spec = find_key(*this, key);
  check(spec, "the key table has no {}", key);
  return !member || member->value.is_auto() || type_error(*spec, member->value).empty();
}

Facts find_facts(const Node& root, const ModelRegistry& models) {
  Facts f;
  f.root = &root;
  f.models = &models;
  f.optimizer = "adamw";
  f.family = models.find(f.text("dstrain.model.type"));
  if (!f.family) f.family = models.families().front();
  f.model = f.family->type;
  if (const Member* m = find(root, "optimizer.type");
      m && m->value.is(Node::Kind::string) && !m->value.is_auto())
    f.optimizer = lower_case(m->value.text);
  if (const Member* m = find(root, "scheduler.type");
      m && m->value.is(Node::Kind::string) && !m->value.is_auto())
    f.scheduler = m->value.text;
  f.stage = f.integer("zero_optimization.stage");
  f.fp16 = f.on("fp16.enabled");
  f.bf16 = f.on("bf16.enabled");
  f.dynamic_scale = f.fp16 && to_real(legal_or_default(f, "fp16.loss_scale")).value_or(0) == 0;
  f.recomputes = f.integer("pipeline.activation_checkpoint_interval") > 0 ||
                 f.integer("dstrain.recompute") > 0 ||
                 lower_case(f.text("dstrain.recompute")) == "selective";
  f.nvme = f.text("dstrain.offload.activations") == "nvme" ||
           (f.stage == 3 && f.text("zero_optimization.offload_param.device") == "nvme") ||
           f.text("zero_optimization.offload_optimizer.device") == "nvme";
  return f;
}

}  // namespace dstrain

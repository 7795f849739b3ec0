#include "runtime/core/formats/pickle/pickle.h"

#include <array>
#include <bit>

#include "runtime/core/formats/pickle/unpickler.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {

std::string_view name_of(PickleKind kind) {
  constexpr std::array<std::string_view, 14> names{
      "None",          "a boolean", "an integer", "a large integer",
      "a real number", "a text",    "bytes",      "a list",
      "a tuple",       "a set",     "a dict",     "a name of Python's",
      "a storage",     "an object"};
  return names[static_cast<size_t>(kind)];
}

Pickle::Pickle(std::string bytes, std::string origin)
    : bytes_(std::move(bytes)), origin_(std::move(origin)), nodes_(1) {
  if (std::ssize(bytes_) > kLargestPickle)
    fail_user("{} has {} bytes, expected at most {}", origin_, bytes_.size(), kLargestPickle);
  root_ = Unpickler(bytes_, origin_, nodes_).read();
}

PickleKind PickleValue::kind() const {
  return pickle_->nodes_[node_].kind;
}

int64_t PickleValue::at() const {
  return pickle_->nodes_[node_].at;
}

int64_t PickleValue::integer() const {
  return pickle_->nodes_[node_].number;
}

double PickleValue::real() const {
  return std::bit_cast<double>(pickle_->nodes_[node_].number);
}

std::string_view PickleValue::text() const {
  return pickle_->nodes_[node_].text;
}

bool PickleValue::is_named(std::string_view name) const {
  const Pickle::Node& node = pickle_->nodes_[node_];
  return (is(PickleKind::global) || is(PickleKind::object)) &&
         name.size() == node.module.size() + 1 + node.text.size() &&
         name.starts_with(node.module) && name[node.module.size()] == '.' &&
         name.ends_with(node.text);
}

std::string PickleValue::shown_name() const {
  const Pickle::Node& node = pickle_->nodes_[node_];
  return dstrain::shown_text(node.module) + "." + dstrain::shown_text(node.text);
}

size_t PickleValue::size() const {
  const PickleKind k = kind();
  const bool has_elements = k == PickleKind::list || k == PickleKind::tuple || k == PickleKind::set;
  return has_elements ? pickle_->nodes_[node_].items.size() : 0;
}

PickleValue PickleValue::operator[](size_t index) const {
  return {pickle_, pickle_->nodes_[node_].items.at(index)};
}

size_t PickleValue::pairs() const {
  const bool has_pairs = is(PickleKind::dict) || is(PickleKind::object);
  return has_pairs ? pickle_->nodes_[node_].items.size() / 2 : 0;
}

PickleValue PickleValue::key(size_t pair) const {
  return {pickle_, pickle_->nodes_[node_].items.at(2 * pair)};
}

PickleValue PickleValue::value(size_t pair) const {
  return {pickle_, pickle_->nodes_[node_].items.at(2 * pair + 1)};
}

std::optional<PickleValue> PickleValue::find(std::string_view wanted) const {
  for (size_t i = pairs(); i-- > 0;)
    if (key(i).is(PickleKind::text) && key(i).text() == wanted) return value(i);
  return std::nullopt;
}

PickleValue PickleValue::arguments() const {
  return {pickle_, pickle_->nodes_[node_].arguments};
}

PickleValue PickleValue::state() const {
  return {pickle_, pickle_->nodes_[node_].state};
}

void PickleValue::fail_with(const std::string& problem) const {
  fail_user("{}, byte {}: {}", pickle_->origin_, at(), problem);
}

}  // namespace dstrain

#include "models/exported/read/read_values.h"

#include <algorithm>
#include <utility>

#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kStrided = 7;

// The one member of an object that says by its key what it is.
struct Tagged {
  std::string tag;
  JsonField value;
};

Tagged tagged(const JsonField& field) {
  std::optional<Tagged> only;
  field.for_each_member([&](const std::string& key, const JsonField& value) {
    if (only) field.fail("has several members, expected one that says its kind");
    only.emplace(Tagged{key, value});
  });
  if (!only) field.fail("is empty, expected a member that says its kind");
  return *only;
}

template <class Read>
auto list_of(const JsonField& field, Read read) {
  std::vector<decltype(read(field))> list;
  for (size_t i = 0; i < field.items(); ++i) list.push_back(read(field.at(i)));
  return list;
}

ScalarType read_type(const JsonField& field) {
  const int64_t number = field.whole();
  const std::optional<ScalarType> type = scalar_type_of(number);
  if (!type)
    field.fail(
        "is the element type {} of PyTorch's ScalarType, expected bool, integers of up to 64 bits "
        "or floats",
        number);
  return *type;
}

MemoryFormat read_memory_format(const JsonField& field) {
  const int64_t number = field.whole();
  if (number < 1 || number > 4) field.fail("is the memory format {}, expected 1 to 4", number);
  return static_cast<MemoryFormat>(number - 1);
}

void check_sizes(const JsonField& meta, const TensorInfo& tensor) {
  if (tensor.sizes.size() > kMaxRank)
    meta.fail("has {} dimensions, expected at most {}", tensor.sizes.size(), kMaxRank);
  if (tensor.strides.size() != tensor.sizes.size())
    meta.fail("has {} sizes and {} strides", tensor.sizes.size(), tensor.strides.size());
  int64_t elements = size_of(tensor.type);
  for (const Size& size : tensor.sizes) {
    if (!size.is_fixed()) continue;
    if (size.value() < 0) meta.fail("has the size {}", size.value());
    if (__builtin_mul_overflow(elements, std::max<int64_t>(size.value(), 1), &elements))
      meta.fail("has sizes {} that overflow", to_string(tensor.sizes));
  }
}

}  // namespace

Size read_size(const JsonField& field) {
  const Tagged size = tagged(field);
  if (size.tag == "as_int") return size.value.whole();
  if (size.tag != "as_expr")
    field.fail("has the kind \"{}\", expected as_int or as_expr", shown_text(size.tag));
  const JsonField text = size.value["expr_str"];
  try {
    return parse_size(text.text());
  } catch (const UserError& e) {
    text.fail("cannot be read: {}", e.what());
  }
}

TensorInfo read_tensor(const JsonField& meta, const std::string& name) {
  TensorInfo tensor;
  tensor.name = name;
  tensor.type = read_type(meta["dtype"]);
  tensor.sizes = list_of(meta["sizes"], read_size);
  tensor.strides = list_of(meta["strides"], read_size);
  tensor.offset = read_size(meta["storage_offset"]);
  tensor.requires_grad = meta["requires_grad"].flag();
  if (const JsonField layout = meta["layout"]; layout.whole() != kStrided)
    layout.fail("is {}, expected {}, a strided tensor", layout.whole(), kStrided);
  check_sizes(meta, tensor);
  return tensor;
}

NamedValues::NamedValues(const JsonField& graph) {
  const JsonField tensors = graph["tensor_values"], numbers = graph["sym_int_values"];
  tensors.for_each_member([&](const std::string& name, const JsonField& meta) {
    ids_.emplace(name, static_cast<int32_t>(tensors_.size()));
    tensors_.push_back(read_tensor(meta, name));
  });
  numbers.for_each_member([&](const std::string& name, const JsonField& number) {
    try {
      numbers_.emplace(name, read_size(number));
    } catch (const UserError& e) {
      unreadable_.emplace(name, e.what());
    }
  });
}

TensorRef NamedValues::tensor(const JsonField& argument) const {
  const JsonField name = argument["name"];
  const auto it = ids_.find(name.name());
  if (it == ids_.end())
    name.fail("names the tensor \"{}\", which the graph does not describe", name.name());
  return {it->second};
}

TensorRef NamedValues::optional_tensor(const JsonField& field) const {
  const Tagged item = tagged(field);
  if (item.tag == "as_none") return {};
  if (item.tag != "as_tensor")
    field.fail("has the kind \"{}\", expected as_tensor or as_none", shown_text(item.tag));
  return tensor(item.value);
}

Size NamedValues::symbolic(const JsonField& field) const {
  const Tagged number = tagged(field);
  if (number.tag == "as_int") return number.value.whole();
  if (number.tag != "as_name")
    field.fail("has the kind \"{}\", expected as_name or as_int", shown_text(number.tag));
  if (const auto it = unreadable_.find(number.value.name()); it != unreadable_.end())
    field.fail("takes the number \"{}\", which cannot be read: {}", it->first, it->second);
  const auto it = numbers_.find(number.value.name());
  if (it == numbers_.end())
    field.fail("names the number \"{}\", which the graph does not describe", number.value.name());
  return it->second;
}

bool NamedValues::is_symbolic(const JsonField& argument) {
  return tagged(argument).tag.starts_with("as_sym_");
}

Argument NamedValues::argument(const JsonField& field) const {
  const auto [tag, value] = tagged(field);
  const auto ref = [this](const JsonField& item) { return tensor(item); };
  const auto optional = [this](const JsonField& item) { return optional_tensor(item); };
  const auto size = [this](const JsonField& item) { return symbolic(item); };
  if (tag == "as_none") return std::monostate();
  if (tag == "as_tensor") return tensor(value);
  if (tag == "as_tensors") return list_of(value, ref);
  if (tag == "as_optional_tensor") return optional_tensor(value);
  if (tag == "as_optional_tensors") return list_of(value, optional);
  if (tag == "as_int") return Size(value.whole());
  if (tag == "as_ints") return list_of(value, [](const JsonField& f) { return Size(f.whole()); });
  if (tag == "as_sym_int") return symbolic(value);
  if (tag == "as_sym_ints") return list_of(value, size);
  if (tag == "as_float") return value.real();
  if (tag == "as_floats") return list_of(value, [](const JsonField& f) { return f.real(); });
  if (tag == "as_bool") return value.flag();
  if (tag == "as_bools") return list_of(value, [](const JsonField& f) { return f.flag(); });
  if (tag == "as_string") return value.text();
  if (tag == "as_strings") return list_of(value, [](const JsonField& f) { return f.text(); });
  if (tag == "as_scalar_type") return read_type(value);
  if (tag == "as_memory_format") return read_memory_format(value);
  if (tag == "as_sym_bool" && value.find("as_bool")) return value["as_bool"].flag();
  if (tag == "as_sym_float" && value.find("as_float")) return value["as_float"].real();
  field.fail("is an argument of the kind \"{}\", expected tensors, numbers, texts or element types",
             shown_text(tag));
}

}  // namespace dstrain::exported

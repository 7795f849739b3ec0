#include "models/exported/graph/scalar_type.h"

#include <array>

namespace dstrain::exported {
namespace {

// A type: its number in the archive's schema, its name, the bytes of an element.
struct TypeFacts {
  ScalarType type;
  int64_t number;
  std::string_view name;
  int64_t bytes;
  bool floating;
};

constexpr std::array kTypeFacts = {
    TypeFacts{ScalarType::boolean, 12, "bool", 1, false},
    TypeFacts{ScalarType::u8, 1, "u8", 1, false},
    TypeFacts{ScalarType::i8, 2, "i8", 1, false},
    TypeFacts{ScalarType::i16, 3, "i16", 2, false},
    TypeFacts{ScalarType::i32, 4, "i32", 4, false},
    TypeFacts{ScalarType::i64, 5, "i64", 8, false},
    TypeFacts{ScalarType::f16, 6, "f16", 2, true},
    TypeFacts{ScalarType::bf16, 13, "bf16", 2, true},
    TypeFacts{ScalarType::f32, 7, "f32", 4, true},
    TypeFacts{ScalarType::f64, 8, "f64", 8, true},
    TypeFacts{ScalarType::f8_e4m3, 29, "f8_e4m3", 1, true},
    TypeFacts{ScalarType::f8_e5m2, 30, "f8_e5m2", 1, true},
};

const TypeFacts& facts_of(ScalarType type) {
  return kTypeFacts[static_cast<size_t>(type)];
}

}  // namespace

int64_t size_of(ScalarType type) {
  return facts_of(type).bytes;
}

std::string_view name_of(ScalarType type) {
  return facts_of(type).name;
}

bool is_floating(ScalarType type) {
  return facts_of(type).floating;
}

std::optional<ScalarType> scalar_type_of(int64_t number) {
  for (const TypeFacts& facts : kTypeFacts)
    if (facts.number == number) return facts.type;
  return std::nullopt;
}

}  // namespace dstrain::exported

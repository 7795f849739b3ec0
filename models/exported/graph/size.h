// Size: a size, stride or whole number of an exported graph. With a symbolic batch it is an expression of symbols such as
// 8*s27, which has a value once the symbols have.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain::exported {

// The values of symbols, by their names.
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

// A sum, product or power of symbols and whole numbers. A power has a base and an exponent that is a number.
struct SizeExpression {
  enum class Kind : uint8_t { number, symbol, sum, product, power };
  Kind kind = Kind::number;
  int64_t number = 0;
  std::string symbol;
  std::vector<SizeExpression> parts;
};

class Size {
 public:
  Size(int64_t value = 0)
      : value_(value) {}  // NOLINT(google-explicit-constructor): a number is a size
  // An expression without symbols becomes its value. Throws UserError if that does not fit into 64 bits.
  explicit Size(SizeExpression expression);

  // Whether the value is known.
  bool is_fixed() const { return !expression_; }
  // Returns the value. Throws InternalError if it is not known.
  int64_t value() const;
  // Returns the expression, or null where the value is known.
  const SizeExpression* expression() const { return expression_.get(); }

  // Returns the value with these symbols, or nothing if one is missing or the value does not fit into 64 bits.
  std::optional<int64_t> value_with(const SymbolValues& symbols) const;
  // Adds the names of the symbols.
  void add_symbols(std::set<std::string>& names) const;

  // Whether both are the same number or the same expression.
  bool operator==(const Size& other) const;

 private:
  int64_t value_ = 0;
  std::shared_ptr<const SizeExpression> expression_;  // null: the value is known
};

std::string to_string(const Size& size);  // "16", "8*s27"

// Returns the size that an archive has as the text of a sympy expression, "Mul(Integer(8), Symbol('s27', integer=True))".
// Throws UserError, without a place, if it is another than a sum, product or power of symbols and whole numbers.
Size parse_size(std::string_view text);

}  // namespace dstrain::exported

// Sums of products by Einstein's notation.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// A tensor with a letter for each dimension.
struct Lettered {
  Value value;
  std::string letters;
};

int place_of_letter(const std::string& letters, char letter) {
  return static_cast<int>(letters.find(letter));
}

// Returns the tensor with its dimensions in the order of `letters`, which are its own, and 1 for those that it has not.
Value ordered(const Lettered& x, const std::string& letters) {
  std::vector<int> order;
  for (const char c : letters)
    if (x.letters.find(c) != std::string::npos) order.push_back(place_of_letter(x.letters, c));
  Value value = permute(x.value, order);
  for (size_t i = 0; i < letters.size(); ++i)
    if (x.letters.find(letters[i]) == std::string::npos)
      value = unsqueeze(std::move(value), static_cast<int>(i));
  return value;
}

// Sums over dimensions that nothing else has.
void sum_rest(Lowering& l, Lettered& x, const std::string& needed) {
  std::vector<int> gone;
  std::string kept;
  for (size_t i = 0; i < x.letters.size(); ++i)
    if (needed.find(x.letters[i]) == std::string::npos)
      gone.push_back(static_cast<int>(i));
    else
      kept += x.letters[i];
  if (gone.empty()) return;
  x.value = l.reduced(Reduction::sum, x.value, gone, false);
  x.letters = kept;
}

// Returns the product of two tensors, summed over what both have and `needed` has not.
Lettered summed_product(Lowering& l, Lettered a, Lettered b, const std::string& needed) {
  sum_rest(l, a, needed + b.letters);
  sum_rest(l, b, needed + a.letters);
  const auto has = [](const std::string& letters, char c) {
    return letters.find(c) != std::string::npos;
  };
  std::string batch, rows, columns, summed;
  for (const char c : a.letters) (has(b.letters, c) ? has(needed, c) ? batch : summed : rows) += c;
  for (const char c : b.letters)
    if (!has(a.letters, c)) columns += c;
  std::map<char, int64_t> sizes;
  for (const Lettered* x : {&a, &b})
    for (size_t i = 0; i < x->letters.size(); ++i) {
      int64_t& size = sizes[x->letters[i]];
      size = std::max(size, x->value.shape[static_cast<int>(i)]);
    }
  const auto product_of = [&](const std::string& letters) {
    int64_t all = 1;
    for (const char c : letters) all *= sizes[c];
    return all;
  };
  const auto shape_of = [&](const std::string& letters) {
    Shape shape;
    for (const char c : letters) shape.append(sizes[c]);
    return shape;
  };
  // (batch, rows or columns, summed), each one dimension.
  const auto matrices = [&](const Lettered& x, const std::string& own) {
    const std::string order = batch + own + summed;
    return l.reshaped(expand(ordered(x, order), shape_of(order)),
                      {product_of(batch), product_of(own), product_of(summed)});
  };
  const Value result = l.contracted(matrices(a, rows), matrices(b, columns));
  const std::string letters = batch + rows + columns;
  return {l.reshaped(result, shape_of(letters)), letters};
}

// Returns the letters of each tensor and of the result, with a letter for each dimension that "..." is.
std::vector<std::string> letters_of(const Node& node, const std::vector<Value>& tensors) {
  std::string equation;
  for (const char c : node.text("equation"))
    if (c != ' ') equation += c;
  const size_t arrow = equation.find("->");
  std::vector<std::string> parts(1);
  for (const char c : equation.substr(0, arrow))
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  if (parts.size() != tensors.size())
    Lowering::fail(node, "has the equation {} for {} tensors", node.text("equation"),
                   tensors.size());
  size_t most = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].find("...") != std::string::npos)
      most = std::max(most, static_cast<size_t>(tensors[i].shape.rank) + 3 - parts[i].size());
  std::string others;
  for (size_t i = 0; i < most; ++i) others += static_cast<char>('0' + i);
  std::string result;
  if (arrow == std::string::npos) {
    std::map<char, int> counts;
    for (const std::string& part : parts)
      for (const char c : part)
        if (c != '.') ++counts[c];
    if (most > 0) result = "...";
    for (const auto& [letter, count] : counts)
      if (count == 1) result += letter;
  } else {
    result = equation.substr(arrow + 2);
  }
  parts.push_back(result);
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string& part = parts[i];
    const size_t dots = part.find("...");
    size_t count = most;
    if (i < tensors.size()) {
      const auto rank = static_cast<size_t>(tensors[i].shape.rank);
      if (dots != std::string::npos) count = rank + 3 - part.size();
      if (part.size() + (dots == std::string::npos ? 0 : count - 3) != rank)
        Lowering::fail(node, "has the equation {} for a tensor of {}", node.text("equation"),
                       to_string(tensors[i].shape));
    }
    if (dots != std::string::npos) part.replace(dots, 3, others.substr(most - count));
    std::string once = part;
    std::ranges::sort(once);
    if (std::ranges::adjacent_find(once) != once.end())
      Lowering::fail(node, "takes a diagonal, which is not supported");
  }
  return parts;
}

void lower_einsum(Lowering& l, const Node& node) {
  const std::vector<Value> tensors = l.operands(node, "tensors");
  const std::vector<std::string> letters = letters_of(node, tensors);
  const std::string& result = letters.back();
  Lettered all{tensors[0], letters[0]};
  for (size_t i = 1; i < tensors.size(); ++i) {
    std::string needed = result;
    for (size_t k = i + 1; k < tensors.size(); ++k) needed += letters[k];
    all = summed_product(l, std::move(all), {tensors[i], letters[i]}, needed);
  }
  sum_rest(l, all, result);
  l.set(node, ordered(all, result));
}

constexpr LoweredOp kEinsum[] = {{"aten.einsum.default", lower_einsum}};

}  // namespace

std::span<const LoweredOp> einsum_operators() {
  return kEinsum;
}

}  // namespace dstrain::exported

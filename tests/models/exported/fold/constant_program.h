// ConstantProgram: a program of which all values are known, and what folding makes of it.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "models/exported/fold/fold.h"
#include "models/exported/graph/solve_sizes.h"
#include "tests/models/exported/small_program.h"
#include "tests/support/temp_dir.h"

namespace dstrain::exported {

inline nlohmann::json ref(const char* name) {
  return SmallProgram::ref(name);
}

// Folds a program with known sizes.
inline FoldedGraph folded(const SmallProgram& program, const FoldOptions& options = {}) {
  const TempDir dir;
  const ExportedModel model = read_exported(dir.write("m.pt2", program.archive()));
  return fold(model, with_sizes(model.graph, {}), options);
}

// Returns the elements of a value.
template <class T>
std::vector<T> elements_of(const HostTensor& tensor) {
  const std::string bytes = tensor.bytes();
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// Writes programs of one operator on constants, and computes it.
class ConstantProgram {
 public:
  using json = nlohmann::json;

  // Adds a constant of the element type with the number `type`.
  template <class T>
  ConstantProgram& with(const std::string& name, int type, const json& sizes,
                        std::initializer_list<T> values) {
    program_.constant(name, type, sizes, bytes_of(values));
    return *this;
  }
  ConstantProgram& with_floats(const std::string& name, const json& sizes,
                               std::initializer_list<float> values) {
    return with(name, SmallProgram::kF32, sizes, values);
  }
  ConstantProgram& with_wholes(const std::string& name, const json& sizes,
                               std::initializer_list<int64_t> values) {
    return with(name, SmallProgram::kI64, sizes, values);
  }

  // Returns the elements of the operator's result, which has the type and sizes.
  template <class T>
  std::vector<T> values(const std::string& target,
                        std::initializer_list<std::pair<std::string, json>> arguments, int type,
                        const json& sizes) {
    SmallProgram program = program_;
    program.describe("result", type, sizes).add(target, arguments, "result").output("result");
    const FoldedGraph graph = folded(program);
    CHECK(graph.graph.nodes.empty());
    REQUIRE(graph.constants.size() == 1);
    return elements_of<T>(graph.constants.begin()->second);
  }

  std::vector<float> floats(const std::string& target,
                            std::initializer_list<std::pair<std::string, json>> arguments,
                            const json& sizes) {
    return values<float>(target, arguments, SmallProgram::kF32, sizes);
  }
  std::vector<int64_t> wholes(const std::string& target,
                              std::initializer_list<std::pair<std::string, json>> arguments,
                              const json& sizes) {
    return values<int64_t>(target, arguments, SmallProgram::kI64, sizes);
  }
  // Truth values, as 0 and 1.
  std::vector<char> truths(const std::string& target,
                           std::initializer_list<std::pair<std::string, json>> arguments,
                           const json& sizes) {
    return values<char>(target, arguments, SmallProgram::kBool, sizes);
  }

  static json whole(int64_t value) { return {{"as_int", value}}; }
  static json real(double value) { return {{"as_float", value}}; }
  static json list(const std::vector<int64_t>& values) { return {{"as_ints", values}}; }
  static json type(int number) { return {{"as_scalar_type", number}}; }

 private:
  SmallProgram program_;
};

}  // namespace dstrain::exported

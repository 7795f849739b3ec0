// Decoders that torch.export has written become the operations that built-in decoders have.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "models/exported/family/exported_family.h"
#include "models/exported/family/opened_model.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/recognise/recognise.h"
#include "tests/support/source_file.h"

namespace dstrain::exported {
namespace {

// Returns how often the forward pass of an archive has each operation, outside of the layer that ends with the loss.
std::map<std::string, int> operations_of(const std::string& archive, bool training = true) {
  const OpenedModel model({.file = source_file("tests/golden/exported/" + archive + "/model.pt2")},
                          GivenData::arrays, exported_family().keys);
  Program program;
  Builder builder(program, {.batch = 3, .training = training});
  model.family().build(builder, ModelConfig(model.family()));
  recognise(program);
  std::map<std::string, int> operations;
  for (const Instruction& op : program.instructions)
    if (program.group_name(op) != "outputs") ++operations[std::string(name_of(op.op))];
  return operations;
}

using Operations = std::map<std::string, int>;

TEST_CASE("a decoder with learned positions has the operations of GPT-lite") {
  CHECK(operations_of("tokens") == Operations{{"embed", 1},
                                              {"layer_norm", 6},
                                              {"linear", 12},
                                              {"attention", 3},
                                              {"activation", 3},
                                              {"add_dropout", 6}});
}

TEST_CASE("a decoder with rotary positions, root mean squares and gates has those of Llama") {
  CHECK(operations_of("gated") == Operations{{"embed", 1},
                                             {"rms_norm", 4},
                                             {"linear", 14},
                                             {"rotary", 4},
                                             {"attention", 2},
                                             {"gated", 2},
                                             {"add_dropout", 4}});
}

// Two layers of PyTorch's own, whose tokens come before the samples inside; two that each have a softmax of products and a mask
// that shows all keys.
TEST_CASE("an encoder has attention of all keys") {
  Operations found = operations_of("encoder");
  CAPTURE(found["map"], found["linear"], found["add_dropout"]);
  CHECK(found["attention"] == 6);
  CHECK(found["layer_norm"] == 6);
  CHECK(found["activation"] == 2);
  for (const char* const general : {"contract", "reduce", "scale"}) CHECK(found[general] == 0);
}

TEST_CASE("a residual network has convolutions, and batch norms with their residuals and acts") {
  Operations found = operations_of("residual");
  CHECK(found["convolution"] == 5);
  CHECK(found["contract"] == 1);  // the stem has too few channels
  CHECK(found["batch_norm"] == 6);
  CHECK(found["max_pool"] == 1);
  CHECK(found["activation"] == 0);
}

}  // namespace
}  // namespace dstrain::exported

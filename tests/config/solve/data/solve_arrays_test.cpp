// The section dstrain.data of a model that reads arrays.
#include <catch2/catch.hpp>

#include "models/registry.h"
#include "tests/config/config_fixture.h"
#include "tests/support/array_model.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

Ask with_arrays(const std::string& data) {
  static const ModelRegistry models(
      {&array_family(), model_registry().find("gptlite"), model_registry().find("benchmark")});
  Ask a = ask(trains_with(R"("dstrain": {"data": {)" + data + "}}"));
  a.request.models = &models;
  return a;
}

}  // namespace

TEST_CASE("arrays: files, order and validation are those of the section") {
  const Job job = with_arrays(R"("path": ["a.npz", "b"], "format": "arrays", "order": "sequential",
                                 "val_fraction": 0.25)")
                      .job();
  CHECK(job.data.paths == std::vector<std::string>{"a.npz", "b"});
  CHECK(job.data.format == DataFormat::arrays);
  CHECK(!job.data.random_order);
  CHECK(job.data.val_fraction == 0.25);
  const Ask usual = with_arrays(R"("path": "a.npz", "val_path": "v.npz")");
  CHECK(usual.job().data.format == DataFormat::arrays);
  CHECK(usual.job().data.random_order);
  CHECK(usual.job().data.val_path == "v.npz");
  CHECK(usual.job().data.val_fraction == 0);
  for (const std::string key : {"path", "val_path"})
    CHECK(verdict(usual.check(), "dstrain.data." + key).starts_with("honoured"));
  Ask none = with_arrays("");
  none.request.need_data = true;
  CHECK_THAT(none.error(), Catch::Contains("dstrain.data.path: missing: name a file of arrays, "
                                           "here or with --data"));
  CHECK_THAT(with_arrays(R"("path": "")").error(),
             Catch::Contains("is empty: name a file of arrays"));
}

TEST_CASE("arrays: keys of text have no effect, and its formats are errors") {
  const LoadedConfig checked =
      with_arrays(R"("path": "a.npz", "seq_len": 8, "token_dtype": "uint16", "vocab": "v.json",
                     "packing": "pack", "too_long": "drop", "chat_template": "chatml",
                     "loss_on": "all", "skip_invalid": true)")
          .check();
  for (const std::string key : {"seq_len", "token_dtype", "vocab", "packing", "too_long",
                                "chat_template", "loss_on", "skip_invalid"}) {
    INFO(key);
    CHECK(verdict(checked, "dstrain.data." + key) == "no_effect: the array model reads arrays");
  }
  CHECK(checked.job.data.packing == Packing::none);
  CHECK_THAT(with_arrays(R"("format": "bin")").error(),
             Catch::Contains("dstrain.data.format: \"bin\" is of models that read text, and the "
                             "array model reads arrays: use \"arrays\" or \"images\", or remove "
                             "the key"));
}

TEST_CASE("arrays: models that read no arrays refuse the format") {
  CHECK_THAT(
      ask(trains_with(R"("dstrain": {"data": {"format": "arrays"}})")).error(),
      Catch::Contains("dstrain.data.format: \"arrays\" is of models whose inputs are arrays, "
                      "and the GPT-lite reads tokens: use auto, char, byte or bin"));
  const LoadedConfig made_up =
      ask(trains_with(R"("dstrain": {"model": {"type": "benchmark", "in_size": 4, "out_size": 2,
                         "hidden_size": 4, "n_layer": 1}, "data": {"format": "arrays"}})"))
          .check();
  CHECK(verdict(made_up, "dstrain.data.format").starts_with("no_effect"));
}

TEST_CASE("arrays: samples have no tokens for sequence ranks") {
  Ask a = ask(trains_with(R"("sequence_parallel_size": 2)"), {}, 2);
  a.request.models = with_arrays("").request.models;
  CHECK_THAT(a.error(), Catch::Contains("the samples of the array model have no tokens to divide"));
}

TEST_CASE("arrays: inputs that are read as a whole are named") {
  CHECK(with_arrays("").job().model.whole().empty());
  const Job job = with_arrays(R"("whole": "x")").job();
  CHECK(job.model.is_whole("x"));
  CHECK(!job.model.is_whole("y"));
  CHECK(job.model.sizes_of(*job.model.family().input(InputRole::array)) ==
        std::vector<int64_t>{7, 3, 4});
  CHECK(job.model.elements_of(InputRole::array) == 84);
  CHECK(with_arrays(R"("whole": ["x"])").job().model == job.model);
  CHECK(setting(with_arrays(R"("whole": ["x"])").load(), "dstrain.data.whole").value == R"(["x"])");
  CHECK_THAT(with_arrays(R"("whole": ["x", "y"])").error(),
             Catch::Contains("dstrain.data.whole: y is no input that the array model can read as a "
                             "whole: name x"));
  CHECK(verdict(ask(trains_with(R"("dstrain": {"data": {"whole": "x"}})")).check(),
                "dstrain.data.whole") == "no_effect: the GPT-lite reads no arrays");
}

// The section dstrain.data: files, tokens of a sample, what counts in the loss.
#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
Ask with_data(const std::string& data, const std::string& model = "") {
  return ask(trains_with(R"("dstrain": {"model": {)" + model + R"(}, "data": {)" + data + "}}"));
}
}  // namespace

TEST_CASE("run: training without data is an error, a plan without data is none") {
  Ask a = ask(trains_with(""));
  CHECK(a.error() == "no error");
  a.request.need_data = true;
  CHECK(a.error() ==
        "c.json:1:1: dstrain.data.path: missing: name a text or token file, here or with --data");
  a.request.data = "x.txt";
  CHECK(a.job().data.paths == std::vector<std::string>{"x.txt"});
}

TEST_CASE("run: seq_len is the tokens of a sample, at most those that the model is made for") {
  const auto with = [](const std::string& data) { return with_data(data, R"("block_size": 64)"); };
  CHECK(with("").job().model.seq_len() == 64);
  CHECK(setting(with("").load(), "dstrain.data.seq_len").value.empty());
  const Ask shorter = with(R"("seq_len": 24)");
  CHECK(shorter.job().model.seq_len() == 24);
  CHECK(shorter.job().model.context() == 64);
  CHECK(setting(shorter.load(), "dstrain.data.seq_len").value == "24");
  CHECK_THAT(with(R"("seq_len": 65)").error(),
             Catch::Contains("dstrain.data.seq_len: 65 is more than dstrain.model.block_size 64"));
}

TEST_CASE("run: data are one path or several, and validation may have a file of its own") {
  CHECK(with_data(R"("path": ["a.bin", "b*.bin"])").job().data.paths ==
        std::vector<std::string>{"a.bin", "b*.bin"});
  CHECK_THAT(with_data(R"("path": ["a.bin", ""])").error(), Catch::Contains("has an empty name"));
  CHECK_THAT(with_data(R"("path": "a", "val_path": "")").error(),
             Catch::Contains("val_path: is empty"));
  const Ask own = with_data(R"("path": "a", "val_path": "v", "val_fraction": 0.3)");
  CHECK(own.job().data.val_path == "v");
  CHECK(own.job().data.val_fraction == 0);
  CHECK(verdict(own.check(), "dstrain.data.val_fraction").starts_with("no_effect: "));
}

TEST_CASE("run: a chat template is named, or that of the model") {
  CHECK(with_data("").job().data.chat_template.empty());
  CHECK(with_data(R"("chat_template": "chatml")").job().data.chat_template == "chatml");
  CHECK(with_data(R"("chat_template": null)").job().data.chat_template.empty());
  CHECK_THAT(with_data(R"("chat_template": "")").error(),
             Catch::Contains("dstrain.data.chat_template: is empty: name chatml, llama3, qwen or a "
                             "file, or remove the key"));
  CHECK_THAT(with_data(R"("chat_template": 5)").error(),
             Catch::Contains("dstrain.data.chat_template: expected a string, found 5"));
}

TEST_CASE("run: the tokens of lines that count in the loss are named, or depend on the line") {
  CHECK(with_data("").job().data.loss_on == LossOn::usual);
  CHECK(setting(with_data("").load(), "dstrain.data.loss_on").value.empty());
  CHECK(with_data(R"("loss_on": null)").job().data.loss_on == LossOn::usual);
  CHECK(with_data(R"("loss_on": "assistant")").job().data.loss_on == LossOn::assistant);
  CHECK(with_data(R"("loss_on": "all")").job().data.loss_on == LossOn::all);
  CHECK_THAT(with_data(R"("loss_on": "answers")").error(),
             Catch::Contains("dstrain.data.loss_on: expected one of \"assistant\", "
                             "\"completion\", \"all\", found \"answers\""));
}

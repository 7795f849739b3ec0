// Runs of a model from a folder of Hugging Face on text: what its tokenizer makes of it, and what is kept of that.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

TEST_CASE("a text is tokenized once, into what tokenize makes of it, and trains as that does") {
  const TextFolder folder;
  const std::string first = folder.run("");
  CHECK(has(first, "tokens, tokenized into " + folder.path("out/cache/text.txt.bin in ")));
  CHECK(has(first, "text.txt.bin: "));
  folder.said(std::string(kProgram) + " tokenize --model m --data text.txt --output own.bin");
  for (const std::string end : {"", ".documents"})
    CHECK(folder.read("out/cache/text.txt.bin" + end) == folder.read("own.bin" + end));
  const std::string weights = folder.read("out/model.safetensors");
  CHECK(has(folder.run(""), "tokens, tokenized before into "));
  CHECK(folder.read("out/model.safetensors") == weights);
  CHECK_FALSE(has(folder.run("--data own.bin"), "tokenized"));
  CHECK(folder.read("out/model.safetensors") == weights);
  CHECK(folder.nothing_left());
}

TEST_CASE("a token file of the cache is made again when text, tokenizer or the file are others") {
  const TextFolder folder;
  const std::string kept = "out/cache/text.txt.bin";
  folder.run("--steps 0");
  const std::string ids = folder.read(kept);
  const auto again = [&] { return folder.run("--steps 0"); };
  const auto makes = [&] { return has(again(), "tokenized into"); };
  // The same text at another time.
  const std::string text = folder.read("text.txt");
  fs::last_write_time(folder.root / "text.txt", fs::file_time_type::clock::now());
  CHECK_FALSE(makes());
  folder.write("text.txt", std::string(text.rbegin(), text.rend()));
  CHECK(makes());
  CHECK(folder.read(kept) != ids);
  folder.write("text.txt", text + "\n");
  CHECK(makes());
  folder.write("text.txt", text);
  CHECK(makes());
  CHECK(folder.read(kept) == ids);
  CHECK_FALSE(makes());
  // Another text of that name, size and time.
  fs::create_directory(folder.root / "x");
  folder.write("x/text.txt", std::string(text.rbegin(), text.rend()));
  fs::last_write_time(folder.root / "x/text.txt", fs::last_write_time(folder.root / "text.txt"));
  CHECK(has(folder.run("--steps 0 --data x/text.txt"), "tokenized into"));
  CHECK(makes());
  // A file that is damaged, or whose record is.
  fs::resize_file(folder.root / kept, 100);
  CHECK(makes());
  for (const std::string record : {"", "{", "{}", "[]"}) {
    folder.write(kept + ".json", record);
    CHECK(makes());
    CHECK_FALSE(makes());
  }
  fs::remove(folder.root / (kept + ".json"));  // as after a kill while it was made
  folder.write(kept + ".tmp", "a part");
  CHECK(makes());
  CHECK(folder.read(kept) == ids);
  json tokenizer = llama_tokenizer();
  tokenizer["added_tokens"].push_back({{"id", 990}, {"content", "quick"}, {"special", false}});
  folder.write("m/tokenizer.json", tokenizer.dump());
  CHECK(makes());
  CHECK(folder.read(kept).size() < ids.size());
  CHECK_FALSE(makes());
}

TEST_CASE("two ranks train on a text as on its token file, started here or by mpirun") {
  const TextFolder folder;
  folder.said(std::string(kProgram) + " tokenize --model m --data text.txt --output own.bin");
  folder.run("--num_gpus 2 --data own.bin");
  const std::string weights = folder.read("out/model.safetensors");
  CHECK_FALSE(fs::exists(folder.root / "out/cache"));
  const std::string mpirun = "mpirun --oversubscribe --bind-to none -np 2 ";
  for (const std::string& words :
       {folder.command("--num_gpus 2"), folder.command("--num_gpus 2 --launcher openmpi"),
        mpirun + folder.command("")}) {
    CAPTURE(words);
    fs::remove_all(folder.root / "out");
    const std::string text = folder.said(words);
    CHECK(folder.read("out/model.safetensors") == weights);
    const size_t line = text.find("tokenized into");
    CHECK(line != std::string::npos);
    CHECK(text.find("tokenized into", line + 1) == std::string::npos);  // one process has made it
    CHECK(folder.nothing_left());
  }
}

TEST_CASE("a run is resumed with what the cache holds, and says where the text has changed") {
  const TextFolder folder;
  folder.run("--save_interval 1");
  const std::string resume = std::string(kProgram) + " --config t.json --model m --resume out ";
  const std::string same = folder.said(resume + "--steps 3");
  CHECK(has(same, "tokenized before"));
  CHECK_FALSE(has(same, "data was"));
  folder.write("text.txt", folder.read("text.txt") + "one more line\n");
  const std::string changed = folder.said(resume + "--steps 4");
  CHECK(has(changed, "tokenized into"));
  CHECK(has(changed, "data was"));
}

TEST_CASE("lists, patterns, JSON lines and a text for validation have a token file each") {
  const TextFolder folder;
  const std::string text = folder.read("text.txt");
  fs::create_directory(folder.root / "x");
  folder.write("x/a.txt", text);
  folder.write("a.txt", "another " + text);
  folder.write("b.jsonl", json_line(text) + json_line("the lazy dog"));
  folder.write("val.txt", text);
  const std::string line = folder.run(
      "--set 'dstrain.data.path=[\"?.txt\",\"x/a.txt\",\"b.jsonl\",\"a.txt\"]' "
      "--set dstrain.data.val_path=val.txt");
  CHECK(has(line, "5 files (a.txt, a.txt, b.jsonl, a.txt, val.txt): "));
  CHECK(has(line, "tokenized into " + folder.path("out/cache") + " in "));
  CHECK(has(line, "4 files (a.txt.bin, a.txt.2.bin, b.jsonl.bin, a.txt.bin): "));
  const std::string tokenize =
      std::string(kProgram) + " tokenize --model m --output own.bin --data ";
  for (const auto& [file, kept] :
       std::vector<std::pair<std::string, std::string>>{{"a.txt", "a.txt.bin"},
                                                        {"x/a.txt", "a.txt.2.bin"},
                                                        {"b.jsonl", "b.jsonl.bin"},
                                                        {"val.txt", "val.txt.bin"}}) {
    folder.said(tokenize + file);
    CHECK(folder.read("out/cache/" + kept) == folder.read("own.bin"));
  }
  // The token that ends documents is no setting of texts.
  folder.write("m/tokenizer_config.json", "{\"eos_token\": \"<|eot_id|>\"}");
  CHECK(has(folder.run("--data b.jsonl"), "tokenized into"));
  folder.run("--data a.txt");
  folder.write("m/tokenizer_config.json", "{}");
  CHECK(has(folder.run("--data a.txt"), "tokenized before"));
  CHECK(
      has(folder.run("--set 'dstrain.data.path=[\"a.txt\",\"b.jsonl\"]'"), ", 1 tokenized into "));
}

TEST_CASE("what only plans writes nothing, though the data are text") {
  const TextFolder folder;
  const std::set<std::string> before = folder.files();
  const std::string options = " --config t.json --model m --num_gpus 2";
  folder.said(std::string(kProgram) + " plan" + options);
  folder.said(std::string(kProgram) + " check" + options);
  folder.said(std::string(kProgram) + " estimate" + options);
  CHECK(has(folder.said(std::string(kProgram) + " verify" + options),
            "samples: random token ids of seed 1337, as only a run tokenizes texts"));
  CHECK(folder.files() == before);
}

TEST_CASE("a text that cannot be tokenized is one error before anything is written") {
  const TextFolder folder;
  const auto refuses = [&](const std::string& options, const std::string& message) {
    for (const std::string ranks : {"1", "2"}) {
      const std::set<std::string> before = folder.files();
      const std::string text = folder.run("--num_gpus " + ranks + " " + options, 1);
      INFO(text);
      CHECK(has(only_error(text), message));
      CHECK(folder.files() == before);
    }
  };
  folder.write("a.csv", "a,b\n1,2\n");
  refuses("--data a.csv", "is a table in CSV");
  // To read the characters of JSON would train a model with a tokenizer on ids that mean nothing to it.
  folder.write("a.json", "{}\n");
  const std::string object = only_error(folder.run("--data a.json", 1));
  CHECK(has(object, "if each of its lines is an object, name it a.jsonl"));
  CHECK_FALSE(has(object, "char"));
  folder.write("b.json", "[" + json_line("a") + ",\n5]\n");
  CHECK(has(only_error(folder.run("--data b.json", 1)),
            "b.json:3: element 2: expected an object such as"));
  folder.write("a.parquet", "PAR1\x15 abc");
  CHECK(has(only_error(folder.run("--data a.parquet", 1)), "pandas.read_parquet('a.parquet')"));
  folder.write("bad.jsonl", json_line("a") + "{\"text\": 5}\n");
  const std::string bad = folder.run("--data bad.jsonl", 1);
  CHECK(has(only_error(bad), "bad.jsonl:2: \"text\": expected a string"));
  CHECK_FALSE(fs::exists(folder.root / "out/cache/bad.jsonl.bin"));
  fs::remove_all(folder.root / "out");
  json tokenizer = llama_tokenizer();
  tokenizer["model"]["vocab"][""] = 995;
  tokenizer["model"]["merges"].push_back(json::array({"", "a"}));
  folder.write("m/tokenizer.json", tokenizer.dump());
  refuses("", "a merge of an empty token has no end");
  folder.write("m/tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  refuses("", "this is a Unigram tokenizer");
  fs::remove(folder.root / "m/tokenizer.json");
  refuses("", "the data file text.txt is text, and the model's folder m has no tokenizer.json");
  // Characters are trained where the configuration says so.
  CHECK(has(folder.run("--set dstrain.data.format=char"), "characters, vocabulary 28"));
}

TEST_CASE("a run that is refused for its output directory leaves nothing there") {
  const TextFolder folder;
  fs::copy(folder.root / "m", folder.root / "out");
  CHECK(has(only_error(folder.said(std::string(kProgram) +
                                       " --config t.json --init_weights random --model out " +
                                       folder.token(),
                                   1)),
            "the folder is that of the model"));
  CHECK_FALSE(fs::exists(folder.root / "out/cache"));
  fs::remove_all(folder.root / "out");
  folder.run("--save_interval 1 --set dstrain.data.format=char");
  CHECK(has(only_error(folder.said(std::string(kProgram) +
                                       " --config t.json --model m --init_weights random " +
                                       folder.token(),
                                   1)),
            "holds the checkpoint of step 2 of another run"));
  CHECK_FALSE(fs::exists(folder.root / "out/cache"));
}

TEST_CASE("eval tokenizes a text with the run's tokenizer, and so knows its bytes") {
  const TextFolder folder;
  folder.run("");
  const std::string text = "caf\u00e9: the quick brown fox";
  folder.write("some.txt", text);
  folder.said(std::string(kProgram) + " tokenize --model m --data some.txt --output some.bin");
  const json of_text = folder.evaluated("some.txt"), of_ids = folder.evaluated("some.bin");
  CHECK(of_text["loss"] == of_ids["loss"]);
  CHECK(of_text["tokens"] == of_ids["tokens"]);
  CHECK(of_ids["bits_per_byte"].is_null());
  const int64_t bytes = of_text["bytes"];
  CHECK((bytes > 0 && bytes < std::ssize(text)));
  const double bits = double(of_text["loss"]) * double(of_text["tokens"]) / std::log(2) /
                      static_cast<double>(bytes);
  CHECK(std::abs(double(of_text["bits_per_byte"]) - bits) < 1e-12);
  CHECK(json::parse(folder.said(
            std::string(kProgram) + " eval --json --model out --seq_len 8 --data some.txt", 0,
            " 2>err")) == of_text);
  folder.write("lines.jsonl", json_line(text) + json_line("lazy"));
  CHECK(folder.evaluated("lines.jsonl")["bytes"] == std::ssize(text) + 4);
  const std::string eval = std::string(kProgram) + " eval --run out --data ";
  folder.write("a.csv", "a,b\n1,2\n");
  CHECK(has(only_error(folder.said(eval + "a.csv", 1)), "is a table in CSV"));
  fs::remove(folder.root / "out/tokenizer.json");
  CHECK(has(only_error(folder.said(eval + "some.txt", 1)),
            "holds text, and the model was trained on token ids"));
}

TEST_CASE("generate takes and writes text where the run has a tokenizer, and ids elsewhere") {
  const TextFolder folder;
  // What another run has left there is not taken for the vocabulary.
  REQUIRE(folder.train("--steps 0").wait() == 0);
  REQUIRE(fs::exists(folder.root / "out/vocab.json"));
  folder.run("--steps 0");
  CHECK_FALSE(fs::exists(folder.root / "out/vocab.json"));
  const std::string prompt = "the caf\u00e9 \u65e5\u672c";
  const std::string text = folder.generated("--tokens 6 --prompt '" + prompt + "'");
  CHECK(text.starts_with(prompt));  // the token that begins a text is not written
  CHECK(folder.said("echo '" + prompt + "' | " + kProgram +
                    " generate --run out --temperature 0 --tokens 6") == text);
  // An empty prompt is what the post-processor puts in front of it, wherever it comes from.
  CHECK(folder.said(std::string("printf '' | ") + kProgram +
                    " generate --run out --temperature 0 --tokens 6") ==
        folder.generated("--tokens 6 --prompt ''"));
  // The ids of the prompt, with the token that the post-processor puts in front of it.
  const json tokenizer = llama_tokenizer();
  folder.write("p.jsonl", json_line(prompt));
  folder.said(std::string(kProgram) + " tokenize --no_eos --model m --data p.jsonl --output p.bin");
  std::string ids;
  const std::string bytes = folder.read("p.bin");
  for (size_t i = 0; i < bytes.size(); i += 2)
    ids += (i == 0 ? "" : ",") + std::to_string(static_cast<unsigned char>(bytes[i]) +
                                                256 * static_cast<unsigned char>(bytes[i + 1]));
  CHECK(folder.generated("--tokens 6 --prompt_ids " + ids) == text);
  const auto refuses = [&](const std::string& options, const std::string& message) {
    CHECK(has(only_error(folder.said(std::string(kProgram) + " generate --run out " + options, 1)),
              message));
  };
  refuses("--tokens 1 --prompt \"$(printf 'a\\377')\"", "UTF-8");
  // Without a tokenizer.
  fs::rename(folder.root / "out/tokenizer.json", folder.root / "kept");
  const std::string all = folder.generated("--tokens 6 --prompt_ids " + ids);
  REQUIRE(all.starts_with(ids + ","));
  refuses("--tokens 1 --prompt the", "was trained on token ids; give --prompt_ids");
  fs::rename(folder.root / "kept", folder.root / "out/tokenizer.json");
  // It stops before the first token that ends a text.
  std::vector<std::string> added;
  std::istringstream rest(all.substr(ids.size() + 1));
  for (std::string id; std::getline(rest, id, ',');) added.push_back(id);
  size_t end = 1;
  while (end < added.size() &&
         std::find(added.begin(), added.begin() + static_cast<std::ptrdiff_t>(end), added[end]) !=
             added.begin() + static_cast<std::ptrdiff_t>(end))
    ++end;
  REQUIRE(end < 6);
  folder.write("out/generation_config.json",
               "{\"eos_token_id\": [999, " + std::to_string(std::stoi(added[end])) + "]}");
  const std::string ended = folder.generated("--tokens 6 --prompt_ids " + ids);
  CHECK(ended == folder.generated("--tokens " + std::to_string(end) + " --prompt_ids " + ids));
  CHECK(ended != text);
  // Without a tokenizer, too.
  fs::rename(folder.root / "out/tokenizer.json", folder.root / "kept");
  const std::string ended_ids = folder.generated("--tokens 6 --prompt_ids " + ids);
  CHECK(ended_ids != all);
  CHECK(ended_ids == folder.generated("--tokens " + std::to_string(end) + " --prompt_ids " + ids));
  folder.write("out/tokenizer.json", "{}");
  refuses("--tokens 1 --prompt the", "out/tokenizer.json");
}

TEST_CASE("token ids are continued without a tokenizer that cannot be read") {
  const TextFolder folder;
  folder.run("--steps 0");
  const fs::path tokenizer = folder.root / "out/tokenizer.json";
  fs::remove(tokenizer);
  const std::string ids = folder.generated("--tokens 4 --prompt_ids 1,5,6");
  REQUIRE(ids.starts_with("1,5,6,"));
  json other = llama_tokenizer();
  other["model"]["type"] = "Unigram";
  folder.write("out/tokenizer.json", other.dump());
  CHECK(folder.generated("--tokens 4 --prompt_ids 1,5,6") == ids);
  CHECK(has(folder.read("err"),
            "warning: out/tokenizer.json: model.type: this is a Unigram tokenizer"));
  const std::string refused =
      folder.said(std::string(kProgram) + " generate --run out --tokens 1 --prompt the", 1);
  CHECK(has(only_error(refused), "make a token file (.bin) with transformers"));
}

TEST_CASE("a run leaves no files of the model that the directory was for before") {
  const TextFolder folder;
  folder.write("m/tokenizer_config.json", "{}");
  folder.write("m/generation_config.json", "{}");
  folder.run("--steps 0");
  REQUIRE(fs::exists(folder.root / "out/generation_config.json"));
  fs::remove(folder.root / "m/generation_config.json");
  folder.write("out/mine.txt", "mine");
  folder.run("--steps 0");
  CHECK_FALSE(fs::exists(folder.root / "out/generation_config.json"));
  CHECK(fs::exists(folder.root / "out/tokenizer_config.json"));
  CHECK(fs::exists(folder.root / "out/mine.txt"));
  // A run that goes on in its directory leaves there what the user has put there.
  folder.run("--set dstrain.save_last=true");
  folder.write("out/special_tokens_map.json", "{}");
  folder.said(std::string(kProgram) + " --config t.json --model m --resume out --steps 3");
  CHECK(fs::exists(folder.root / "out/special_tokens_map.json"));
}

TEST_CASE("a file of the model that cannot be copied is one error before anything is replaced") {
  const TextFolder folder;
  folder.run("--steps 0");
  const std::string config = folder.read("out/config.json");
  folder.write("m/config.json", folder.read("m/config.json") + "\n");
  fs::create_directory(folder.root / "m/generation_config.json");
  for (const std::string ranks : {"1", "2"}) {
    const std::string text = folder.run("--steps 0 --num_gpus " + ranks, 1);
    CHECK(has(only_error(text), "m/generation_config.json is a directory, expected a file"));
    CHECK(folder.read("out/config.json") == config);
  }
}

}  // namespace
}  // namespace dstrain

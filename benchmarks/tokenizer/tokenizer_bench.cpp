// Encodes documents on one thread, for benchmarks/tokenizer/compare_tokenizers.py. Reads numbers of rounds from standard
// input and answers each with one line of JSON: {"ms": [...]}.
// tokenizer_bench TOKENIZER.json DOCUMENTS.jsonl
#include <fmt/ranges.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {
namespace {

std::vector<std::string> documents_of(const std::string& path) {
  std::vector<std::string> documents;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);)
    documents.push_back(nlohmann::json::parse(line)["text"].get<std::string>());
  return documents;
}

void answer_requests(const Tokenizer& tokenizer, const std::vector<std::string>& documents) {
  TextEncoder encoder(tokenizer);
  std::vector<std::vector<uint32_t>> results(documents.size());
  const auto round = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < documents.size(); ++i) {
      results[i] = {};
      unicode::Invalid invalid;
      encoder.encode(documents[i], results[i], invalid);
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  round();
  size_t tokens = 0;
  for (const auto& ids : results) tokens += ids.size();
  std::cout << fmt::format("{{\"ready\": {}}}", tokens) << std::endl;
  for (int64_t rounds = 0; std::cin >> rounds;) {
    std::vector<double> times;
    while (std::ssize(times) < rounds) times.push_back(round());
    std::cout << fmt::format("{{\"ms\": [{}]}}", fmt::join(times, ", ")) << std::endl;
  }
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: tokenizer_bench TOKENIZER.json DOCUMENTS.jsonl\n";
    return 1;
  }
  try {
    const dstrain::Tokenizer tokenizer(
        dstrain::read_input_file(argv[1], "the tokenizer", int64_t{1} << 29), argv[1]);
    dstrain::answer_requests(tokenizer, dstrain::documents_of(argv[2]));
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
  return 0;
}

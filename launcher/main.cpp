#include "launcher/commands/run_command.h"

int main(int argc, char** argv) {
  return dstrain::run(std::vector<std::string>(argv + 1, argv + argc));
}

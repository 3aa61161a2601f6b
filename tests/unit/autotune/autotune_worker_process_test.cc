// A process that was stopped in the middle of a message, or that takes none, costs its limit of time and no more.
#include "autotune/workers/worker_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include <sys/socket.h>
#include <unistd.h>

namespace nestor {
namespace {

constexpr std::size_t kLarge = std::size_t{8} << 20;  // more than a socket holds

nlohmann::json large_message() { return {{"text", std::string(kLarge, 'x')}}; }

/// Sends the first bytes of what is announced as a message of `length` bytes.
void send_part(int socket, std::uint64_t length, std::size_t bytes) {
  std::string part(sizeof length + bytes, 'x');
  std::memcpy(part.data(), &length, sizeof length);
  EXPECT_EQ(send(socket, part.data(), part.size(), MSG_NOSIGNAL), static_cast<ssize_t>(part.size()));
}

double seconds_of(const std::function<void()>& work) {
  const auto start = WorkerClock::now();
  work();
  return milliseconds_since(start) / 1000;
}

TEST(WorkerProcess, OneThatIsStoppedWithinAMessageIsTooLate) {
  for (const std::size_t bytes : {0, 5, 1000}) {
    WorkerProcess process;
    process.start(0, [&](int socket) {
      send_part(socket, 5000, bytes);
      raise(SIGSTOP);
    });
    process.limit(0.5);
    Heard heard;
    EXPECT_LT(seconds_of([&] { heard = process.wait_and_hear(); }), 5);
    EXPECT_EQ(heard.kind, Heard::Kind::too_late) << bytes;
    EXPECT_FALSE(process.alive());
  }
}

TEST(WorkerProcess, HearingDoesNotWaitForTheRestOfAMessage) {
  WorkerProcess process;
  process.start(0, [](int socket) {
    send_part(socket, 5000, 10);
    raise(SIGSTOP);
  });
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(process.wait_and_hear(after_seconds(0.3)).kind, Heard::Kind::nothing); }), 5);
}

TEST(WorkerProcess, OneThatIsStoppedAndTakesNothingIsTooLate) {
  WorkerProcess process;
  process.start(0, [](int) { raise(SIGSTOP); });
  EXPECT_LT(seconds_of([&] { EXPECT_TRUE(process.send(large_message())); }), 5);
  process.limit(0.5);
  EXPECT_EQ(process.wait_and_hear().kind, Heard::Kind::too_late);
}

TEST(WorkerProcess, LargeMessagesGoBothWaysAndSeveralAtOnce) {
  WorkerProcess process;
  process.start(0, [](int socket) {
    send_message(socket, {{"ready", true}});
    while (const auto message = receive_message(socket)) send_message(socket, *message);
  });
  process.limit(60);
  ASSERT_TRUE(process.send(large_message()));
  ASSERT_TRUE(process.send({{"text", "second"}}));
  EXPECT_EQ(process.wait_and_hear().message, nlohmann::json({{"ready", true}}));
  EXPECT_EQ(process.wait_and_hear().message, large_message());
  EXPECT_EQ(process.wait_and_hear().message, nlohmann::json({{"text", "second"}}));
}

TEST(WorkerProcess, AnEndOrNonsenseWithinAMessageIsADeath) {
  WorkerProcess process;
  process.start(0, [](int socket) { send_part(socket, 5000, 10); });
  EXPECT_EQ(process.wait_and_hear().kind, Heard::Kind::death);
  process.start(0, [](int socket) {
    send_part(socket, ~std::uint64_t{0}, 10);
    raise(SIGSTOP);
  });
  EXPECT_EQ(process.wait_and_hear().kind, Heard::Kind::death);
  process.start(0, [](int socket) { send_message(socket, {{"again", 1}}); });
  EXPECT_EQ(process.wait_and_hear().message, nlohmann::json({{"again", 1}})) << "nothing is left of the message before";
  EXPECT_FALSE(WorkerProcess().send({}));
}

/// A message that came while this process was stopped, or slow, is heard after the time for it is over.
TEST(WorkerProcess, OneThatSpeaksIsNotTooLate) {
  WorkerProcess process;
  process.start(0, [](int socket) { send_message(socket, large_message()); });
  process.limit(0.2);
  usleep(600000);
  EXPECT_EQ(process.wait_and_hear().kind, Heard::Kind::message);
}

}  // namespace
}  // namespace nestor

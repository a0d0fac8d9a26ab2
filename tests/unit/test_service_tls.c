/* Handshakes with clients of a worker are computed by threads of their own: however long one takes, the loop serves others. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "tests/unit/service_fixture.h"
#include "tests/unit/tls_pair.h"

static pthread_t loop_thread;
static sem_t gate;
static _Atomic unsigned by_threads, by_the_loop;

int __real_transport_handshake(struct transport *transport);
int __wrap_transport_handshake(struct transport *transport);

/* A thread waits at the gate before it takes a step. */
int __wrap_transport_handshake(struct transport *transport) {
    if (pthread_equal(pthread_self(), loop_thread)) {
        by_the_loop++;
    } else {
        by_threads++;
        sem_wait(&gate);
        sem_post(&gate);
    }
    return __real_transport_handshake(transport);
}

/* A connection to the service that begins with TLS; the client's end. */
static struct transport open_secured(const struct tls_pair *pair) {
    struct connection_options options = {
        .service = &service, .session = 77, .peer = &peer, .tls = pair->server_context};
    struct transport secured;
    struct connection *made;
    struct fault fault;
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    cr_assert_eq(connection_create(&options, fds[1], &made, &fault), STATUS_OK);
    cr_assert_eq(transport_init(&secured, fds[0], pair->client_context, &fault), STATUS_OK);
    return secured;
}

Test(service_tls, a_handshake_that_takes_long_holds_no_client_up, .timeout = 60) {
    const Tensord__Ping ping = TENSORD__PING__INIT;
    struct tls_pair pair;
    uint8_t bytes[256];
    loop_thread = pthread_self();
    sem_init(&gate, 0, 0);
    tls_pair_make(&pair, 0);
    open_service(&(struct limits){0});
    open_client();
    struct transport secured = open_secured(&pair);
    cr_assert_eq(__real_transport_handshake(&secured), EAGAIN);
    while (!by_threads && !by_the_loop) {
        turn();
        sched_yield();
    }
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        send_message(FRAME_PING, sequence, &ping.base);
        cr_assert_eq(receive_message(bytes, sizeof bytes).type, FRAME_PONG);
    }
    cr_assert_eq(by_threads, 1, "the step has not ended");
    sem_post(&gate);
    while (__real_transport_handshake(&secured)) {
        turn();
        sched_yield();
    }
    cr_assert_eq(by_the_loop, 0, "%u steps by the loop's thread", by_the_loop);
    transport_finish(&secured);
    close_service();
    tls_pair_finish(&pair);
}

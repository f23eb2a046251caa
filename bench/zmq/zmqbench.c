/*
 * One end of a libzmq connection for rdsbench: the same jobs and the same lines
 * as bench/internal/worker, see there.
 *
 *   zmqbench TEST ROLE SIZE ENDPOINT PID WARM_MS TIME_MS LIMIT_S PEERS
 *
 * One way is PUSH to PULL, round trips are DEALER to DEALER: the leanest pairs
 * that libzmq has. In a mesh each endpoint has one DEALER, which is connected to
 * all others and takes them in turn. A message is made with zmq_msg_init_size
 * and filled, and received with zmq_msg_recv without a copy, as libzmq's own perf
 * programs do.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

static size_t size;
static char *payload, *endpoint;
static pid_t serve_pid;
static int64_t warm, span; /* ns */
static int peers;
static void *context;

static void fail(const char *what)
{
	fprintf(stderr, "zmqbench: %s: %s\n", what, zmq_strerror(zmq_errno()));
	exit(1);
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;
	if (clock_gettime(id, &ts))
		return 0;
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t now(void) { return clock_ns(CLOCK_MONOTONIC); }

static int64_t process_ns(pid_t pid)
{
	clockid_t id;
	if (clock_getcpuclockid(pid, &id))
		return 0;
	return clock_ns(id);
}

/* Processor time of both processes. */
static int64_t serve_ns, measure_ns;

static void cpu_start(void)
{
	serve_ns = process_ns(serve_pid);
	measure_ns = process_ns(getpid());
}

static void cpu_end(void)
{
	serve_ns = process_ns(serve_pid) - serve_ns;
	measure_ns = process_ns(getpid()) - measure_ns;
}

static void print_cpu(void)
{
	printf(" cpu_serve_ns=%lld cpu_measure_ns=%lld\n", (long long)serve_ns, (long long)measure_ns);
}

static void send_one(void *sock)
{
	zmq_msg_t m;
	if (zmq_msg_init_size(&m, size))
		fail("zmq_msg_init_size");
	memcpy(zmq_msg_data(&m), payload, size);
	if (zmq_msg_send(&m, sock, 0) < 0)
		fail("zmq_msg_send");
}

static size_t recv_one(void *sock)
{
	zmq_msg_t m;
	zmq_msg_init(&m);
	if (zmq_msg_recv(&m, sock, 0) < 0)
		fail("zmq_msg_recv");
	size_t n = zmq_msg_size(&m);
	zmq_msg_close(&m);
	return n;
}

/* open_socket makes one that may hold hwm messages for each peer. */
static void *open_socket(int type, int hwm)
{
	void *sock = zmq_socket(context, type);
	int linger = 0;
	if (!sock)
		fail("zmq_socket");
	if (zmq_setsockopt(sock, ZMQ_SNDHWM, &hwm, sizeof hwm) || zmq_setsockopt(sock, ZMQ_RCVHWM, &hwm, sizeof hwm) ||
	    zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger))
		fail("zmq_setsockopt");
	return sock;
}

/* bind_any binds and returns the endpoint with the port that was chosen. */
static char *bind_any(void *sock, const char *to)
{
	static char at[256];
	size_t len = sizeof at;
	if (zmq_bind(sock, to))
		fail("zmq_bind");
	if (zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, at, &len))
		fail("ZMQ_LAST_ENDPOINT");
	return at;
}

static void ready(const char *at)
{
	printf("ready %s\n", at);
	fflush(stdout);
}

/* high_water is about as many bytes as an RDS socket of the comparison may have
   outstanding: libzmq's default of 1000 messages slows small ones down. */
static int high_water(void)
{
	int64_t hwm = (4 << 20) / (int64_t)size;
	return hwm < 1000 ? 1000 : hwm > 65536 ? 65536 : hwm;
}

/* address_of returns the endpoint of the i-th address after the one given,
   which is tcp://A.B.C.D, with this port. */
static const char *address_of(int i, const char *port)
{
	static char at[64];
	unsigned a, b, c, d;
	if (sscanf(endpoint, "tcp://%u.%u.%u.%u", &a, &b, &c, &d) != 4)
		fail("the endpoint is no IPv4 address");
	unsigned ip = (a << 24 | b << 16 | c << 8 | d) + i;
	snprintf(at, sizeof at, "tcp://%u.%u.%u.%u:%s", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255, port);
	return at;
}

/* --- one way ------------------------------------------------------------- */

static int64_t messages, bytes;

/* drain receives until ns have passed and returns how many it were. */
static int64_t drain(void *sock, int64_t ns)
{
	int stride = 65536 / size;
	stride = stride < 1 ? 1 : stride > 256 ? 256 : stride;
	messages = bytes = 0;
	int64_t start = now(), took = 0;
	while (took < ns) {
		for (int i = 0; i < stride; i++) {
			bytes += recv_one(sock);
			messages++;
		}
		took = now() - start;
	}
	return took;
}

static void oneway_serve(void)
{
	void *sock = open_socket(ZMQ_PUSH, high_water());
	ready(bind_any(sock, endpoint));
	for (;;)
		send_one(sock);
}

static void oneway_measure(void)
{
	void *sock = open_socket(ZMQ_PULL, high_water());
	if (zmq_connect(sock, endpoint))
		fail("zmq_connect");
	recv_one(sock);
	drain(sock, warm);
	cpu_start();
	int64_t took = drain(sock, span);
	cpu_end();
	printf("result messages=%lld bytes=%lld ns=%lld", (long long)messages, (long long)bytes, (long long)took);
	print_cpu();
}

/* --- round trip ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static void roundtrip_serve(void)
{
	void *sock = open_socket(ZMQ_DEALER, high_water());
	ready(bind_any(sock, endpoint));
	for (;;) {
		recv_one(sock);
		send_one(sock);
	}
}

static void roundtrip_measure(void)
{
	enum { most = 1 << 22 };
	int64_t *t = malloc(most * sizeof *t), n = 0;
	void *sock = open_socket(ZMQ_DEALER, high_water());
	if (!t || zmq_connect(sock, endpoint))
		fail("zmq_connect");
	for (int64_t start = now(); now() - start <= warm;) {
		send_one(sock);
		recv_one(sock);
	}
	cpu_start();
	int64_t start = now(), last = start;
	while (last - start < span && n < most) {
		send_one(sock);
		recv_one(sock);
		int64_t t1 = now();
		t[n++] = t1 - last;
		last = t1;
	}
	cpu_end();
	qsort(t, n, sizeof *t, by_value);
	printf("result messages=%lld ns=%lld p50_ns=%lld p99_ns=%lld", (long long)(2 * n), (long long)(last - start),
	       (long long)t[n / 2], (long long)t[n * 99 / 100]);
	print_cpu();
}

/* --- mesh ---------------------------------------------------------------- */

struct endpoint {
	void *sock;
	atomic_llong got;
	char pad[64];
};

static atomic_int flood;

static int try_send(void *sock)
{
	zmq_msg_t m;
	if (zmq_msg_init_size(&m, size))
		fail("zmq_msg_init_size");
	memcpy(zmq_msg_data(&m), payload, size);
	if (zmq_msg_send(&m, sock, ZMQ_DONTWAIT) >= 0)
		return 1;
	zmq_msg_close(&m);
	if (zmq_errno() != EAGAIN)
		fail("zmq_msg_send");
	return 0;
}

static int try_recv(void *sock)
{
	zmq_msg_t m;
	zmq_msg_init(&m);
	int n = zmq_msg_recv(&m, sock, ZMQ_DONTWAIT);
	zmq_msg_close(&m);
	if (n < 0 && zmq_errno() != EAGAIN)
		fail("zmq_msg_recv");
	return n >= 0;
}

/* A socket belongs to one thread, so this one sends and receives in turn. */
static void *mesh_endpoint(void *arg)
{
	enum { burst = 64 };
	struct endpoint *e = arg;
	/* One message for every pair first: connecting is not what is measured. */
	int first = peers - 1;
	for (;;) {
		int flooded = atomic_load_explicit(&flood, memory_order_relaxed), moved = 0, n = 0;
		while (n < burst && (flooded || first > 0) && try_send(e->sock)) {
			first--;
			n++;
		}
		moved = n;
		for (n = 0; n < burst && try_recv(e->sock);)
			n++;
		atomic_fetch_add_explicit(&e->got, n, memory_order_relaxed);
		if (moved + n == 0) {
			zmq_pollitem_t item = {e->sock, 0, flooded ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN, 0};
			zmq_poll(&item, 1, 5);
		}
		if (first < 0)
			first = 0;
	}
	return NULL;
}

/* SETTLED is how many messages for each pair go before measuring: libzmq needs
   seconds for its connections after the first one each. */
enum { SETTLED = 20 };

static long long mesh_total(struct endpoint *e)
{
	long long sum = 0;
	for (int i = 0; i < peers; i++)
		sum += atomic_load(&e[i].got);
	return sum;
}

static void want_files(rlim_t n)
{
	struct rlimit lim;
	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur >= n)
		return;
	rlim_t max = lim.rlim_max;
	lim.rlim_cur = n;
	if (lim.rlim_max < n)
		lim.rlim_max = n;
	if (setrlimit(RLIMIT_NOFILE, &lim)) {
		printf("skip needs %lld open files, the limit is %lld (ulimit -Hn)\n", (long long)n, (long long)max);
		exit(0);
	}
}

static void mesh(void)
{
	/* Both ends of each connection, and some for everything else. */
	want_files((rlim_t)peers * peers + 1000);
	zmq_ctx_set(context, ZMQ_IO_THREADS, sysconf(_SC_NPROCESSORS_ONLN));
	struct endpoint *e = calloc(peers, sizeof *e);
	char (*at)[64] = calloc(peers, sizeof *at);
	if (!e || !at)
		fail("calloc");
	/* A high-water mark is for each pair. Together about as many as an RDS
	   endpoint of the comparison may have outstanding, but not fewer than fill
	   some writes. */
	int hwm = 4096 / peers;
	if (hwm < 64)
		hwm = 64;
	for (int i = 0; i < peers; i++) {
		e[i].sock = open_socket(ZMQ_DEALER, hwm);
		strcpy(at[i], bind_any(e[i].sock, address_of(i, "*")));
	}
	for (int i = 0; i < peers; i++)
		for (int j = i + 1; j < peers; j++)
			if (zmq_connect(e[i].sock, at[j]))
				fail("zmq_connect");
	for (int i = 0; i < peers; i++)
		if ((errno = pthread_create(&(pthread_t){0}, NULL, mesh_endpoint, &e[i])))
			fail("pthread_create");
	long long pairs = (long long)peers * (peers - 1);
	while (mesh_total(e) < pairs)
		usleep(5000);
	atomic_store(&flood, 1);
	while (mesh_total(e) < SETTLED * pairs)
		usleep(5000);
	usleep(warm / 1000);
	serve_pid = getpid();
	cpu_start();
	long long before = mesh_total(e);
	int64_t start = now();
	usleep(span / 1000);
	long long n = mesh_total(e) - before;
	int64_t took = now() - start;
	cpu_end();
	serve_ns = 0;
	printf("result messages=%lld bytes=%lld ns=%lld", n, n * (long long)size, (long long)took);
	print_cpu();
}

/* --- idle ---------------------------------------------------------------- */

static void idle_serve(void)
{
	want_files(4 * peers + 1000);
	void *sock = open_socket(ZMQ_ROUTER, 1000);
	/* An address for each peer: a second connection to the same one would be
	   ignored. */
	char *first = bind_any(sock, endpoint);
	for (int i = 1; i < peers; i++)
		if (zmq_bind(sock, address_of(i, strrchr(first, ':') + 1)))
			fail("zmq_bind");
	ready(first);
	for (;;) {
		zmq_msg_t id, m;
		zmq_msg_init(&id);
		zmq_msg_init(&m);
		if (zmq_msg_recv(&id, sock, 0) < 0 || zmq_msg_recv(&m, sock, 0) < 0)
			fail("zmq_msg_recv");
		if (zmq_msg_send(&id, sock, ZMQ_SNDMORE) < 0 || zmq_msg_send(&m, sock, 0) < 0)
			fail("zmq_msg_send");
	}
}

static long resident_kb(void)
{
	char line[256];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmRSS: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

static void idle_measure(void)
{
	enum { first = 3 };
	want_files(4 * peers + 1000);
	void *sock = open_socket(ZMQ_DEALER, 1000);
	size = 9;
	payload = "here I am";
	long before = 0;
	for (int i = 0; i < peers; i++) {
		if (i == first)
			before = resident_kb();
		if (zmq_connect(sock, address_of(i, strrchr(endpoint, ':') + 1)))
			fail("zmq_connect");
		/* The messages go to the peers in turn: in the end each had some. */
		for (int k = 0; k < 1 + (i == peers - 1) * peers; k++) {
			send_one(sock);
			recv_one(sock);
		}
	}
	usleep(500000); /* as in package worker */
	printf("result resident=%.0f\n", (resident_kb() - before) * 1024.0 / (peers - first));
}

int main(int argc, char **argv)
{
	if (argc != 10) {
		fprintf(stderr, "usage: zmqbench TEST ROLE SIZE ENDPOINT PID WARM_MS TIME_MS LIMIT_S PEERS\n");
		return 2;
	}
	size = strtoul(argv[3], NULL, 10);
	endpoint = argv[4];
	serve_pid = atoi(argv[5]);
	warm = atoll(argv[6]) * 1000000;
	span = atoll(argv[7]) * 1000000;
	alarm(atoi(argv[8]));
	peers = atoi(argv[9]);
	payload = malloc(size);
	context = zmq_ctx_new();
	if (!size || !payload || !context)
		fail("zmq_ctx_new");
	memset(payload, 1, size);

	const struct {
		const char *test, *role;
		void (*run)(void);
	} jobs[] = {
		{"oneway", "serve", oneway_serve},
		{"oneway", "measure", oneway_measure},
		{"roundtrip", "serve", roundtrip_serve},
		{"roundtrip", "measure", roundtrip_measure},
		{"mesh", "measure", mesh},
		{"idle", "serve", idle_serve},
		{"idle", "measure", idle_measure},
	};
	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
		if (strcmp(argv[1], jobs[i].test) || strcmp(argv[2], jobs[i].role))
			continue;
		jobs[i].run();
		/* _exit: libzmq would wait for its threads, and they for sockets. */
		fflush(stdout);
		_exit(0);
	}
	fprintf(stderr, "zmqbench: no job %s %s\n", argv[1], argv[2]);
	return 2;
}

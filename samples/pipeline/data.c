/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The images.  Rank 0 reads the file and is the first stage, so it keeps the
 * pixels; the last stage computes the loss and is sent the labels.  The stages
 * between need neither, only the sizes.
 *
 * The order of the images in an epoch follows from the seed, so that no rank
 * has to tell another which ones are in a micro-batch.
 */
#include <errno.h>
#include <string.h>

#include "pipeline.h"

#define HELD_OUT_EVERY 5
#define IMAGES_MAX 1000000

uint64_t random_next(uint64_t *state)
{
	uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
	return mixed ^ (mixed >> 31);
}

void data_shuffle(int *order, int count, uint64_t seed, int epoch)
{
	uint64_t state = seed ^ ((uint64_t)epoch << 32) ^ 0x0de8u;

	for (int i = 0; i < count; i++)
		order[i] = i;
	for (int i = count - 1; i > 0; i--) {
		int other = (int)(random_next(&state) % (uint64_t)(i + 1));
		int moved = order[i];

		order[i] = order[other];
		order[other] = moved;
	}
}

/* A line is a digit, a space and 64 pixels; NULL, or what is wrong with it. */
static const char *parse(const char *line, struct images *images)
{
	static const char spelling[] = "0123456789abcdefg";
	float *pixels = images->pixels + (size_t)images->count * PIXELS;

	if (line[0] < '0' || line[0] > '9' || line[1] != ' ')
		return "does not begin with a digit and a space";
	if (strcspn(line + 2, "\r\n") != PIXELS)
		return "has not 64 pixels";
	for (int i = 0; i < PIXELS; i++) {
		const char *at = strchr(spelling, line[2 + i]);

		if (at == NULL)
			return "has a pixel that is not 0 to 9 or a to g";
		pixels[i] = (float)(at - spelling) / 16.0f;
	}
	images->labels[images->count++] = (unsigned char)(line[0] - '0');
	return NULL;
}

static void grow(struct images *images, int *room)
{
	if (images->count < *room)
		return;
	*room = *room > 0 ? 2 * *room : 1024;
	images->pixels = realloc(images->pixels,
	                         (size_t)*room * PIXELS * sizeof(float));
	images->labels = realloc(images->labels, (size_t)*room);
	if (images->pixels == NULL || images->labels == NULL) {
		fprintf(stderr, "pipeline: out of memory\n");
		exit(EXIT_FAILURE);
	}
}

static bool read_lines(FILE *file, const char *path, struct data *data)
{
	char line[256];
	int room[2] = { 0, 0 }, images = 0;

	for (int number = 1; fgets(line, sizeof(line), file) != NULL;
	     number++) {
		bool held_out = images % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
		struct images *set = held_out ? &data->held_out
		                              : &data->training;
		const char *wrong;

		if (line[0] == '#')
			continue;
		grow(set, &room[held_out]);
		wrong = parse(line, set);
		if (wrong == NULL && ++images > IMAGES_MAX)
			wrong = "is one image too many";
		if (wrong != NULL) {
			fprintf(stderr, "pipeline: %s: line %d %s\n", path,
			        number, wrong);
			return false;
		}
	}
	if (ferror(file) || data->held_out.count == 0) {
		fprintf(stderr, "pipeline: %s: %s\n", path,
		        ferror(file) ? strerror(errno)
		                     : "fewer than 5 images");
		return false;
	}
	return true;
}

bool data_read(const char *path, struct data *data_p)
{
	FILE *file = fopen(path, "r");
	bool good;

	memset(data_p, 0, sizeof(*data_p));
	if (file == NULL) {
		fprintf(stderr, "pipeline: cannot read %s: %s; --data names "
		        "another file\n", path, strerror(errno));
		return false;
	}
	good = read_lines(file, path, data_p);
	fclose(file);
	if (!good)
		data_free(data_p);
	return good;
}

void data_free(struct data *data)
{
	free(data->training.pixels);
	free(data->training.labels);
	free(data->held_out.pixels);
	free(data->held_out.labels);
	memset(data, 0, sizeof(*data));
}

bool data_share(struct baton_comm *comm, const struct data *read,
                struct data *data_p)
{
	int rank = baton_comm_rank(comm), last = baton_comm_size(comm) - 1;
	int sizes[2] = { 0, 0 };

	if (rank == 0 && read != NULL) {
		sizes[0] = read->training.count;
		sizes[1] = read->held_out.count;
		*data_p = *read;
	}
	for (int peer = 1; rank == 0 && peer <= last; peer++)
		transfer(comm, peer, TAG_DATA, false, sizes, sizeof(sizes));
	if (rank != 0)
		transfer(comm, 0, TAG_DATA, true, sizes, sizeof(sizes));
	if (sizes[0] == 0)
		return false;
	if (rank != 0) {
		memset(data_p, 0, sizeof(*data_p));
		data_p->training.count = sizes[0];
		data_p->held_out.count = sizes[1];
	}
	if (rank == last && last != 0) {
		data_p->training.labels = allocate((size_t)sizes[0], 1);
		data_p->held_out.labels = allocate((size_t)sizes[1], 1);
	}
	if (last != 0 && (rank == 0 || rank == last)) {
		transfer(comm, last - rank, TAG_DATA, rank == last,
		         data_p->training.labels, (size_t)sizes[0]);
		transfer(comm, last - rank, TAG_DATA, rank == last,
		         data_p->held_out.labels, (size_t)sizes[1]);
	}
	return true;
}

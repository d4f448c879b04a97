/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layers of one stage.  All layers but the model's last end in a rectifier;
 * the last gives the digits' scores, and the loss is their softmax's
 * cross-entropy.
 *
 * The results do not depend on how the layers are spread over stages: the
 * initial weights follow from the seed and the layer's number, each matrix
 * product has the same shape wherever it runs, and the micro-batches'
 * gradients are summed in the order of the micro-batches on every schedule.
 * So the weights can be compared bit by bit, as long as all ranks run on the
 * same kind of processor (OpenBLAS picks its kernels by it; cuBLAS by the GPU).
 */
#include <math.h>
#include <string.h>

#include "pipeline.h"

#define LEARNING_RATE 0.05f
#define MOMENTUM 0.9f

void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count > 0 ? count : 1, size);

	if (memory == NULL) {
		fprintf(stderr, "pipeline: out of memory\n");
		exit(EXIT_FAILURE);
	}
	return memory;
}

static int width(const struct options *options, int layer)
{
	if (layer == 0)
		return PIXELS;
	return layer == options->layers ? DIGITS : options->hidden;
}

size_t layer_size(const struct options *options, int number)
{
	return ((size_t)width(options, number) + 1) *
	       (size_t)width(options, number + 1);
}

/* Uniform, with the variance that keeps activations from growing or fading
 * through rectifiers: 2 / inputs. */
static void layer_init(struct layer *layer, const struct options *options,
                       int number)
{
	size_t weights;
	uint64_t state = options->seed * 1000003u + (uint64_t)number;
	float bound;

	layer->inputs = width(options, number);
	layer->outputs = width(options, number + 1);
	weights = (size_t)layer->inputs * (size_t)layer->outputs;
	layer->size = layer_size(options, number);
	layer->weights = allocate(layer->size, sizeof(float));
	layer->gradient = allocate(layer->size, sizeof(float));
	layer->velocity = allocate(layer->size, sizeof(float));
	bound = sqrtf(6.0f / (float)layer->inputs);
	for (size_t i = 0; i < weights; i++) {
		float unit = (float)(random_next(&state) >> 40) / 16777216.0f;

		layer->weights[i] = (2.0f * unit - 1.0f) * bound;
	}
	products_place(layer);
}

static float *matrix(const struct mlp *mlp, int columns)
{
	return allocate((size_t)mlp->rows * (size_t)columns, sizeof(float));
}

static void slots_init(struct mlp *mlp)
{
	const struct layer *top = &mlp->layers[mlp->count - 1];
	size_t slots = (size_t)mlp->slots;

	mlp->values = allocate(slots * (size_t)(mlp->count + 1),
	                       sizeof(float *));
	mlp->gradient_in = allocate(slots, sizeof(float *));
	mlp->gradient_out = allocate(slots, sizeof(float *));
	for (int slot = 0; slot < mlp->slots; slot++) {
		float **values = &mlp->values[slot * (mlp->count + 1)];

		for (int i = 0; i < mlp->count; i++)
			values[i] = matrix(mlp, mlp->layers[i].inputs);
		values[mlp->count] = matrix(mlp, top->outputs);
		mlp->gradient_in[slot] = matrix(mlp, top->outputs);
		mlp->gradient_out[slot] = matrix(mlp, mlp->layers[0].inputs);
	}
}

void mlp_init(struct mlp *mlp, const struct options *options, int first,
              int count)
{
	int widest = options->hidden > PIXELS ? options->hidden : PIXELS;

	mlp->first = first;
	mlp->count = count;
	mlp->total = options->layers;
	mlp->rows = options->batch / options->micro_batches;
	mlp->slots = options->micro_batches + 1; /* and one to evaluate */
	mlp->layers = allocate((size_t)count, sizeof(*mlp->layers));
	for (int i = 0; i < count; i++)
		layer_init(&mlp->layers[i], options, first + i);
	slots_init(mlp);
	for (int i = 0; i < 2; i++)
		mlp->scratch[i] = matrix(mlp, widest);
}

void mlp_fini(struct mlp *mlp)
{
	for (int i = 0; i < mlp->count; i++) {
		products_displace(&mlp->layers[i]);
		free(mlp->layers[i].weights);
		free(mlp->layers[i].gradient);
		free(mlp->layers[i].velocity);
	}
	for (int i = 0; i < mlp->slots * (mlp->count + 1); i++)
		free(mlp->values[i]);
	for (int slot = 0; slot < mlp->slots; slot++) {
		free(mlp->gradient_in[slot]);
		free(mlp->gradient_out[slot]);
	}
	for (int i = 0; i < 2; i++)
		free(mlp->scratch[i]);
	free(mlp->values);
	free(mlp->gradient_in);
	free(mlp->gradient_out);
	free(mlp->layers);
}

/* to = from x weights + biases, rectified unless it is the model's last. */
static void layer_forward(const struct layer *layer, bool rectify, int rows,
                          const float *from, float *to)
{
	int outputs = layer->outputs;
	const float *biases = layer->weights + layer->size - outputs;

	products_forward(layer, rows, from, to);
	for (int row = 0; row < rows; row++, to += outputs) {
		for (int i = 0; i < outputs; i++) {
			float value = to[i] + biases[i];

			to[i] = rectify && value < 0.0f ? 0.0f : value;
		}
	}
}

static void between_layers(const struct mlp *mlp)
{
	if (mlp->between != NULL)
		mlp->between(mlp->between_argument);
}

void mlp_forward(struct mlp *mlp, int slot)
{
	float **values = &mlp->values[slot * (mlp->count + 1)];

	for (int i = 0; i < mlp->count; i++) {
		layer_forward(&mlp->layers[i], mlp->first + i + 1 < mlp->total,
		              mlp->rows, values[i], values[i + 1]);
		between_layers(mlp);
	}
}

static int largest(const float *values, int count)
{
	int best = 0;

	for (int i = 1; i < count; i++) {
		if (values[i] > values[best])
			best = i;
	}
	return best;
}

void mlp_loss(struct mlp *mlp, int slot, int rows, const unsigned char *labels,
              float scale, struct score *score)
{
	for (int row = 0; row < rows; row++) {
		const float *scores = mlp_output(mlp, slot) + row * DIGITS;
		float *gradient = mlp->gradient_in[slot] + row * DIGITS;
		int best = largest(scores, DIGITS), label = labels[row];
		float sum = 0.0f;

		for (int i = 0; i < DIGITS; i++) {
			gradient[i] = expf(scores[i] - scores[best]);
			sum += gradient[i];
		}
		score->loss += (double)(logf(sum) + scores[best] -
		                        scores[label]);
		score->images += 1.0;
		score->correct += best == label ? 1.0 : 0.0;
		for (int i = 0; i < DIGITS; i++)
			gradient[i] = scale * (gradient[i] / sum -
			                       (i == label ? 1.0f : 0.0f));
	}
}

/* Add the gradients of weights and biases; `above` is the loss's gradient by
 * the layer's outputs. */
static void layer_gradient(struct layer *layer, int rows, const float *from,
                           const float *above)
{
	int outputs = layer->outputs;
	float *biases = layer->gradient + layer->size - outputs;

	products_gradient(layer, rows, from, above);
	for (int row = 0; row < rows; row++) {
		for (int i = 0; i < outputs; i++)
			biases[i] += above[(size_t)row * (size_t)outputs +
			                   (size_t)i];
	}
}

/* The rectifier lets through what was positive. */
static void rectifier_backward(const float *outputs, float *gradient,
                               size_t size)
{
	for (size_t i = 0; i < size; i++)
		gradient[i] = outputs[i] > 0.0f ? gradient[i] : 0.0f;
}

void mlp_backward(struct mlp *mlp, int slot)
{
	float **values = &mlp->values[slot * (mlp->count + 1)];
	float *above = mlp->gradient_in[slot];

	for (int i = mlp->count - 1; i >= 0; i--) {
		struct layer *layer = &mlp->layers[i];
		float *below = i > 0 ? mlp->scratch[i % 2]
		                     : mlp->gradient_out[slot];

		if (mlp->first + i + 1 < mlp->total)
			rectifier_backward(values[i + 1], above,
			                   (size_t)mlp->rows *
			                           (size_t)layer->outputs);
		layer_gradient(layer, mlp->rows, values[i], above);
		if (mlp->first + i > 0) /* nobody asks for the images' own */
			products_backward(layer, mlp->rows, above, below);
		above = below;
		between_layers(mlp);
	}
}

void mlp_update(struct mlp *mlp)
{
	for (int i = 0; i < mlp->count; i++) {
		struct layer *layer = &mlp->layers[i];

		products_summed(layer);
		for (size_t j = 0; j < layer->size; j++) {
			layer->velocity[j] = MOMENTUM * layer->velocity[j] +
			                     layer->gradient[j];
			layer->weights[j] -= LEARNING_RATE * layer->velocity[j];
			layer->gradient[j] = 0.0f;
		}
		products_updated(layer);
	}
}

from implementation import Model as Model
